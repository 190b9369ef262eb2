{{/* What scales a pool: (list $target .autoscaling) */}}
{{- define "fairlead.pool.scaler" -}}
scaleTargetRef: {{- index . 0 | toYaml | nindent 2 }}
minReplicas: {{ (index . 1).min }}
maxReplicas: {{ (index . 1).max }}
metrics:
  # How long the oldest waiting request has waited; the pool counts as overloaded at 1 s.
  - type: Pods
    pods:
      metric: {name: fairlead_worker_queue_seconds}
      target: {type: AverageValue, averageValue: 500m}
  # Pages that running requests hold; cached pages that could be freed do not count.
  - type: Pods
    pods:
      metric: {name: fairlead_worker_kv_used_ratio}
      target: {type: AverageValue, averageValue: 800m}
behavior:
  # A worker takes minutes to load and takes its prefix cache with it when it goes: come quickly, go slowly.
  scaleUp:
    stabilizationWindowSeconds: 30
    policies:
      - {type: Percent, value: 100, periodSeconds: 60}
  scaleDown:
    stabilizationWindowSeconds: 600
    policies:
      - {type: Pods, value: 1, periodSeconds: 300}
{{- end }}

{{/* By KEDA, which reads the same two metrics from Prometheus: (list $target .autoscaling) */}}
{{- define "fairlead.pool.scaledObject" -}}
{{- $pods := printf "{pod=~\"%s-[0-9]+\"}" (index . 0).name }}
{{- with index . 1 }}
scaleTargetRef: {{- index $ 0 | toYaml | nindent 2 }}
minReplicaCount: {{ .min }}
maxReplicaCount: {{ .max }}
cooldownPeriod: 600
triggers:
  {{- $server := .keda }}
  {{- range $metric, $threshold := dict "fairlead_worker_queue_seconds" "0.5" "fairlead_worker_kv_used_ratio" "0.8" }}
  - type: prometheus
    metricType: Value
    metadata:
      serverAddress: {{ $server }}
      query: {{ printf "avg(%s%s)" $metric $pods | quote }}
      threshold: {{ $threshold | quote }}
  {{- end }}
{{- end }}
{{- end }}
