{{/* What a pool has said or gets if it says nothing, and whether that can work. */}}
{{- define "fairlead.pool.engine" -}}
{{ .engine | default "transformers" }}
{{- end }}

{{- define "fairlead.pool.storage" -}}
{{ .storage | default (gt (int .nodes) 1 | ternary "600Gi" (.gpus | empty | ternary "" "100Gi")) }}
{{- end }}

{{- define "fairlead.pool.gpuResource" -}}
{{ .gpuResource | default "nvidia.com/gpu" }}
{{- end }}

{{- define "fairlead.pool.drain" -}}
{{ (index . 1).drainSeconds | default (index . 0).Values.drainSeconds }}
{{- end }}

{{/* The image of a pool's workers. */}}
{{- define "fairlead.pool.image" -}}
{{- $engine := include "fairlead.pool.engine" . -}}
{{- if eq $engine "adapter" -}}control-plane
{{- else if eq $engine "vllm" -}}worker-vllm
{{- else if .gpus -}}worker-cuda
{{- else -}}worker
{{- end -}}
{{- end }}

{{/* What computes gets these, unless the pool says its own: as in deploy/k8s, by the number of GPUs. */}}
{{- define "fairlead.pool.resources" -}}
{{- $gpus := int .gpus }}
{{- $gpu := include "fairlead.pool.gpuResource" . }}
{{- if .resources }}
{{- toYaml .resources }}
{{- else if gt (int .nodes) 1 }}
requests: {cpu: "8", memory: 64Gi, ephemeral-storage: 500Gi, {{ $gpu }}: {{ $gpus | quote }}}
limits: {cpu: "16", memory: 128Gi, ephemeral-storage: 602Gi, {{ $gpu }}: {{ $gpus | quote }}}
{{- else if gt $gpus 1 }}
requests: {cpu: "8", memory: 64Gi, ephemeral-storage: 1Gi, {{ $gpu }}: {{ $gpus | quote }}}
limits: {cpu: "16", memory: 128Gi, ephemeral-storage: 6Gi, {{ $gpu }}: {{ $gpus | quote }}}
{{- else if $gpus }}
requests: {cpu: "4", memory: 24Gi, ephemeral-storage: 1Gi, {{ $gpu }}: "1"}
limits: {cpu: "8", memory: 48Gi, ephemeral-storage: 6Gi, {{ $gpu }}: "1"}
{{- else }}
requests: {cpu: "2", memory: 3Gi, ephemeral-storage: 1Gi}
limits: {cpu: "2", memory: 4Gi, ephemeral-storage: 6Gi}
{{- end }}
{{- end }}

{{/* The data of a pool's ConfigMap: (list $ .) */}}
{{- define "fairlead.pool.settings" -}}
{{- $root := index . 0 }}
{{- with index . 1 }}
{{- $gpus := int .gpus }}
{{- $engine := include "fairlead.pool.engine" . }}
{{- $service := eq $engine "adapter" | ternary "ADAPTER" "WORKER" }}
{{- $files := list "files/worker.env" }}
{{- $options := dict "DRAIN_SECONDS" (include "fairlead.pool.drain" (list $root .)) }}
{{- if eq $engine "adapter" }}
  {{- $files = list "files/adapter.env" }}
{{- else }}
  {{- $_ := set $options "MODEL" .model }}
  {{- if $gpus }}
    {{- $files = append $files "files/worker-gpu.env" }}
  {{- end }}
  {{- if eq $engine "vllm" }}
    {{- $files = append $files "files/worker-vllm.env" }}
    {{- if gt $gpus 1 }}
      {{- $_ := set $options "VLLM_ARGS" (printf "{tensor_parallel_size: %d}" $gpus) }}
    {{- end }}
  {{- end }}
{{- end }}
{{- if $root.Values.monitoring }}
  {{- $_ := set $options "METRICS" "[::]:9464" }}
{{- end }}
{{- $options = merge (deepCopy (.settings | default dict)) $options }}
{{- if gt (int .nodes) 1 }}
  {{- $_ := unset $options "VLLM_ARGS" }}
{{- end }}
{{- include "fairlead.settings" (list $root $service $files $options) }}
{{- end }}
{{- end }}

{{/* Refuses what the schema cannot see. */}}
{{- define "fairlead.pool.check" -}}
{{- $engine := include "fairlead.pool.engine" . }}
{{- $vllm := has $engine (list "vllm" "adapter") }}
{{- if and $vllm (not .gpus) }}{{ fail (printf "pool %s: the engine %s needs gpus" .name $engine) }}{{ end }}
{{- if and (gt (int .gpus) 1) (not $vllm) }}{{ fail (printf "pool %s: only vLLM splits a model over %d gpus" .name (int .gpus)) }}{{ end }}
{{- if and (gt (int .nodes) 1) (ne $engine "vllm") }}{{ fail (printf "pool %s: only the engine vllm splits a model over %d nodes" .name (int .nodes)) }}{{ end }}
{{- if and .replicas .autoscaling }}{{ fail (printf "pool %s: replicas would be set again at each upgrade, against autoscaling" .name) }}{{ end }}
{{- if and .serve (ne $engine "adapter") }}{{ fail (printf "pool %s: serve is for the engine adapter" .name) }}{{ end }}
{{- $gpu := include "fairlead.pool.gpuResource" . }}
{{- if and .resources .gpus (not (index (.resources.limits | default dict) $gpu)) }}
{{- fail (printf "pool %s: resources replace the defaults, so their limits must name %s" .name $gpu) }}
{{- end }}
{{- end }}

{{/* The metadata of a pool's workload: (list $ .) */}}
{{- define "fairlead.pool.metadata" -}}
{{ include "fairlead.metadata" (list (index . 0) (index . 1).name) }}
  fairlead-release: {{ (index . 0).Release.Name }}
annotations:
  # By which an upgrade finds out whose workers it would remove (_running.tpl).
  fairlead/model: {{ (index . 1).model | quote }}
{{- end }}
