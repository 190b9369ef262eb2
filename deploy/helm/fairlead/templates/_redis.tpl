{{- define "fairlead.redis.template" -}}
{{- $selector := include "fairlead.selector" (list $ "redis") }}
metadata:
  labels:
    {{- $selector | nindent 4 }}
    app.kubernetes.io/part-of: fairlead
spec:
  {{- include "fairlead.pod" (list $ "redis") | nindent 2 }}
  terminationGracePeriodSeconds: 10
  securityContext:
    runAsNonRoot: true
    runAsUser: 999
    runAsGroup: 999
    seccompProfile: {type: RuntimeDefault}
  containers:
    - name: redis
      image: {{ .Values.redis.image }}
      # Redis or Valkey, whichever the image has. Both secrets are passwords of its one user.
      command: [sh, -c]
      args:
        - >-
          exec "$(command -v valkey-server || command -v redis-server)" --port 6379 --bind '*' '-::*'
          --save '' --appendonly no --dir /tmp --maxmemory 200mb --user default on ">$FAIRLEAD_SECRET" ${FAIRLEAD_ACCEPTED_SECRET:+">$FAIRLEAD_ACCEPTED_SECRET"} '~*' '&*' '+@all'
      env:
        {{- include "fairlead.secretVariables" . | nindent 8 }}
      ports:
        - {name: redis, containerPort: 6379}
      # 2 min, also on a node that is short of processor time: a restart would not make it faster.
      startupProbe:
        tcpSocket: {port: redis}
        periodSeconds: 1
        failureThreshold: 120
      livenessProbe:
        tcpSocket: {port: redis}
        periodSeconds: 10
        timeoutSeconds: 5
      readinessProbe:
        tcpSocket: {port: redis}
        periodSeconds: 2
      resources:
        requests: {cpu: 100m, memory: 64Mi, ephemeral-storage: 128Mi}
        limits: {memory: 256Mi, ephemeral-storage: 1Gi}
      securityContext: {{- include "fairlead.confined" . | nindent 8 }}
{{- end }}
