{{/* The gateways drain as long as the slowest pool. */}}
{{- define "fairlead.gateway.drain" -}}
{{- $drain := .Values.drainSeconds }}
{{- range .Values.pools }}
  {{- $drain = max $drain (.drainSeconds | default 0) }}
{{- end }}
{{- $drain }}
{{- end }}

{{- define "fairlead.gateway.settings" -}}
{{- $options := dict "DRAIN_SECONDS" (include "fairlead.gateway.drain" .) }}
{{- if .Values.monitoring }}
  {{- $_ := set $options "METRICS" "[::]:9464" }}
{{- end }}
{{- if .Values.tls }}
  {{- $_ := set $options "TLS" "/etc/fairlead/tls/tls.crt,/etc/fairlead/tls/tls.key" }}
  {{- $_ := set $options "HEALTH_LISTEN" "[::]:7001" }}
{{- end }}
{{- $settings := include "fairlead.settings" (list $ "GATEWAY" (list "files/gateway.env") (merge (deepCopy .Values.gateway.settings) $options)) }}
{{- with .Values.tracing }}
  {{- $settings = printf "%s\nOTEL_EXPORTER_OTLP_TRACES_ENDPOINT: %s\nOTEL_TRACES_SAMPLER_ARG: \"0.05\"" $settings . }}
{{- end }}
{{- $settings }}
{{- end }}

{{- define "fairlead.gateway.template" -}}
{{- $name := .Release.Name }}
{{- $selector := include "fairlead.selector" (list $ "gateway") }}
{{- $health := .Values.tls | empty | ternary 7000 7001 }}
metadata:
  labels:
    {{- $selector | nindent 4 }}
    app.kubernetes.io/part-of: fairlead
  {{- if .Values.monitoring }}
  annotations: {{- include "fairlead.scrape" . | nindent 4 }}
  {{- end }}
spec:
  {{- include "fairlead.pod" (list $ "gateway") | nindent 2 }}
  # 5 s preStop, while endpoints forget this pod, + the drain for open calls of the slowest pool + 10 s to flush traces
  # and exit.
  terminationGracePeriodSeconds: {{ add 15 (include "fairlead.gateway.drain" .) }}
  {{- include "fairlead.spread" (list $selector "pod-template-hash") | nindent 2 }}
  securityContext:
    {{- include "fairlead.user" . | nindent 4 }}
    fsGroup: 10001
  containers:
    - name: gateway
      image: {{ include "fairlead.image" (list $ "control-plane") }}
      command: [python, -m, gateway]
      args:
        - --listen
        - "[::]:7000"
        {{- if .Values.gateway.http }}
        - --http-listen
        - "[::]:8000"
        {{- end }}
        - --scheduler
        - {{ include "fairlead.schedulers" . }}
      envFrom:
        - configMapRef: {name: {{ include "fairlead.settingsName" (list $ "gateway" (include "fairlead.gateway.settings" .)) }}}
      env:
        {{- include "fairlead.secretVariables" . | nindent 8 }}
        {{- include "fairlead.redisVariables" . | nindent 8 }}
      ports:
        - {name: grpc, containerPort: 7000}
        {{- if .Values.gateway.http }}
        - {name: http, containerPort: 8000}
        {{- end }}
        {{- if .Values.tls }}
        - {name: health, containerPort: 7001}
        {{- end }}
        {{- if .Values.monitoring }}
        - {name: metrics, containerPort: 9464}
        {{- end }}
      # `live` is answered while the process runs; readiness also needs a worker, and is lost on SIGTERM.
      # 2 min, also on a node that is short of processor time: a restart would not make it faster.
      startupProbe:
        grpc: {port: {{ $health }}, service: live}
        periodSeconds: 1
        failureThreshold: 120
      livenessProbe:
        grpc: {port: {{ $health }}, service: live}
        periodSeconds: 10
        timeoutSeconds: 5
      readinessProbe:
        grpc: {port: {{ $health }}}
        periodSeconds: 5
      lifecycle:
        preStop:
          exec: {command: [sleep, "5"]}
      resources: {{- toYaml .Values.gateway.resources | nindent 8 }}
      securityContext: {{- include "fairlead.confined" . | nindent 8 }}
      volumeMounts:
        - {name: keys, mountPath: /etc/fairlead/keys, readOnly: true}
        - {name: profiles, mountPath: /etc/fairlead/profiles, readOnly: true}
        {{- if .Values.tls }}
        - {name: tls, mountPath: /etc/fairlead/tls, readOnly: true}
        {{- end }}
  volumes:
    - name: keys
      secret: {secretName: {{ .Values.secrets.keys }}}
    - name: profiles
      configMap: {name: {{ $name }}-profiles}
    {{- with .Values.tls }}
    - name: tls
      secret: {secretName: {{ . }}}
    {{- end }}
{{- end }}

{{- define "fairlead.gateway.service" -}}
apiVersion: v1
kind: Service
metadata: {{- include "fairlead.metadata" (list $ "gateway") | nindent 2 }}
spec:
  selector: {{- include "fairlead.selector" (list $ "gateway") | nindent 4 }}
  ports:
    - name: grpc
      port: 7000
      targetPort: grpc
      {{- if not .Values.tls }}
      appProtocol: kubernetes.io/h2c
      {{- end }}
    {{- if .Values.gateway.http }}
    - {name: http, port: 8000, targetPort: http, appProtocol: {{ .Values.tls | empty | ternary "http" "https" }}}
    {{- end }}
{{- end }}

{{/* (list $ .Values.gateway.autoscaling) */}}
{{- define "fairlead.gateway.scaler" -}}
scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ (index . 0).Release.Name }}-gateway}
minReplicas: {{ (index . 1).min }}
maxReplicas: {{ (index . 1).max }}
metrics:
  - type: Resource
    resource:
      name: cpu
      # One Python process uses at most one core, twice its request.
      target: {type: Utilization, averageUtilization: 120}
behavior:
  scaleDown:
    stabilizationWindowSeconds: 300
{{- end }}
