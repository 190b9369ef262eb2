{{- define "fairlead.scheduler.settings" -}}
{{- $options := .Values.monitoring | ternary (dict "METRICS" "[::]:9464") (dict) }}
{{- include "fairlead.settings" (list $ "SCHEDULER" (list "files/scheduler.env") (merge (deepCopy .Values.scheduler.settings) $options)) }}
{{- end }}

{{- define "fairlead.scheduler.template" -}}
{{- $selector := include "fairlead.selector" (list $ "scheduler") }}
metadata:
  labels:
    {{- $selector | nindent 4 }}
    app.kubernetes.io/part-of: fairlead
  {{- if .Values.monitoring }}
  annotations: {{- include "fairlead.scrape" . | nindent 4 }}
  {{- end }}
spec:
  {{- include "fairlead.pod" (list $ "scheduler") | nindent 2 }}
  # Its streams are endless, so it drops them 0.2 s after SIGTERM; the rest is margin. No request passes through it.
  terminationGracePeriodSeconds: 10
  {{- include "fairlead.spread" (list $selector "controller-revision-hash") | nindent 2 }}
  securityContext: {{- include "fairlead.user" . | nindent 4 }}
  containers:
    - name: scheduler
      image: {{ include "fairlead.image" (list $ "control-plane") }}
      command: [python, -m, global_scheduler]
      args: [--listen, "[::]:7050"]
      envFrom:
        - configMapRef: {name: {{ include "fairlead.settingsName" (list $ "scheduler" (include "fairlead.scheduler.settings" .)) }}}
      env:
        {{- include "fairlead.secretVariables" . | nindent 8 }}
        {{- include "fairlead.redisVariables" . | nindent 8 }}
      ports:
        - {name: grpc, containerPort: 7050}
        {{- if .Values.monitoring }}
        - {name: metrics, containerPort: 9464}
        {{- end }}
      # 2 min, also on a node that is short of processor time: a restart would not make it faster.
      startupProbe:
        grpc: {port: 7050, service: live}
        periodSeconds: 1
        failureThreshold: 120
      livenessProbe:
        grpc: {port: 7050, service: live}
        periodSeconds: 10
        timeoutSeconds: 5
      readinessProbe:
        grpc: {port: 7050}
        periodSeconds: 2
      resources: {{- toYaml .Values.scheduler.resources | nindent 8 }}
      securityContext: {{- include "fairlead.confined" . | nindent 8 }}
{{- end }}
