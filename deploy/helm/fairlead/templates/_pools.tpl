{{/* The image of a pool's workers. */}}
{{- define "fairlead.pool.image" -}}
{{- if eq (.engine | default "transformers") "vllm" -}}worker-vllm
{{- else if .gpus -}}worker-cuda
{{- else -}}worker
{{- end -}}
{{- end }}

{{/* CPUs and memory, unless the pool says its own: as in deploy/k8s, by the number of GPUs. */}}
{{- define "fairlead.pool.resources" -}}
{{- $gpus := int .gpus }}
{{- if .resources }}
{{- toYaml .resources }}
{{- else if gt $gpus 1 }}
requests: {cpu: "8", memory: 64Gi, nvidia.com/gpu: {{ $gpus | quote }}}
limits: {cpu: "16", memory: 128Gi, nvidia.com/gpu: {{ $gpus | quote }}}
{{- else if $gpus }}
requests: {cpu: "4", memory: 24Gi, nvidia.com/gpu: "1"}
limits: {cpu: "8", memory: 48Gi, nvidia.com/gpu: "1"}
{{- else }}
requests: {cpu: "2", memory: 3Gi}
limits: {cpu: "2", memory: 4Gi}
{{- end }}
{{- end }}

{{/* Refuses what the schema cannot see. */}}
{{- define "fairlead.pool.check" -}}
{{- $vllm := eq (.engine | default "transformers") "vllm" }}
{{- if and $vllm (not .gpus) }}{{ fail (printf "pool %s: the engine vllm needs gpus" .name) }}{{ end }}
{{- if and (gt (int .gpus) 1) (not $vllm) }}{{ fail (printf "pool %s: only the engine vllm splits a model over %d gpus" .name (int .gpus)) }}{{ end }}
{{- if and .resources .gpus (not (index (.resources.limits | default dict) "nvidia.com/gpu")) }}
{{- fail (printf "pool %s: resources replace the defaults, so their limits must name nvidia.com/gpu" .name) }}
{{- end }}
{{- end }}
