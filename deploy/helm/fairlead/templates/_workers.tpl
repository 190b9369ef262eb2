{{/* The template of a pool's pods, with the pool's overlay: (list $ pool role), as below. */}}
{{- define "fairlead.worker.template" -}}
{{- include "fairlead.overlaid" (list (include "fairlead.worker.plain" .) (index . 1).pod) }}
{{- end }}

{{- define "fairlead.worker.plain" -}}
{{- $root := index . 0 -}}
{{- $isRanks := eq (index . 2) "ranks" -}}
metadata:
  labels:
    {{- include "fairlead.selector" (list $root ($isRanks | ternary "worker-ranks" "worker")) | nindent 4 }}
    fairlead-pool: {{ (index . 1).name }}
    app.kubernetes.io/part-of: fairlead
  {{- if and $root.Values.monitoring (not $isRanks) }}
  annotations: {{- include "fairlead.scrape" $root | nindent 4 }}
  {{- end }}
spec: {{- include "fairlead.worker.pod" . | nindent 2 }}
{{- end }}

{{/* A worker's pod: (list $ pool role), where the role is `worker` or, of a group of pods that are one worker, `ranks`. */}}
{{- define "fairlead.worker.pod" -}}
{{- $root := index . 0 }}
{{- $isRanks := eq (index . 2) "ranks" }}
{{- with index . 1 }}
{{- $isGroup := gt (int .nodes) 1 }}
{{- $isAdapter := eq (include "fairlead.pool.engine" .) "adapter" }}
{{- $weights := .weights | default dict }}
{{- $storage := include "fairlead.pool.storage" . }}
{{- include "fairlead.pod" (list $root "worker") }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- if $isRanks }}
# They serve nothing: no ports, no probes. Nothing is lost when they end, apart from the group.
terminationGracePeriodSeconds: 10
{{- else }}
# The drain for running requests + 1 s for streams to close + 9 s for the step under way and exit. No preStop: nothing
# reaches a worker through a Service, and the scheduler tells gateways of the drain.
terminationGracePeriodSeconds: {{ add 10 (include "fairlead.pool.drain" (list $root .)) }}
{{- end }}
{{- if not $isGroup }}
{{- $selector := printf "%s\nfairlead-pool: %s" (include "fairlead.selector" (list $root "worker")) .name }}
{{- include "fairlead.spread" (list $selector "controller-revision-hash") }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- $tolerations := .tolerations | default list }}
{{- if .gpus }}
  {{- $tolerations = append $tolerations (dict "key" (include "fairlead.pool.gpuResource" .) "operator" "Exists" "effect" "NoSchedule") }}
{{- end }}
{{- with $tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "fairlead.user" . | nindent 2 }}
  fsGroup: 10001
  {{- if and $storage (not $isGroup) }}
  # Else a node would change the owner of every file of the volume at each start.
  fsGroupChangePolicy: OnRootMismatch
  {{- end }}
{{- if or $weights.download $isAdapter }}
initContainers:
  {{- with $weights.download }}
  - name: download
    image: {{ .image }}
    command: {{- toYaml .command | nindent 6 }}
    env: {{- include "fairlead.hubVariable" $root | nindent 6 }}
    resources:
      requests: {cpu: "1", memory: 1Gi, ephemeral-storage: 1Gi}
    securityContext: {{- include "fairlead.confined" . | nindent 6 }}
    volumeMounts:
      - {name: cache, mountPath: /var/cache/fairlead}
      - {name: tmp, mountPath: /tmp}
  {{- end }}
  {{- if $isAdapter }}
  {{- include "fairlead.engine" (list $root .) | nindent 2 }}
  {{- end }}
{{- end }}
containers:
  - name: worker
    image: {{ include "fairlead.image" (list $root (include "fairlead.pool.image" .)) }}
    command: [python, -m, {{ $isAdapter | ternary "engine_adapter" "local_worker" }}]
    args:
      - --listen
      - "[::]:7100"
      - --scheduler
      - {{ include "fairlead.schedulers" $root }}
      - --name
      - $(POD_NAME)
      - --advertise
      - $(POD_IP):7100
      {{- if $isGroup }}
      - --vllm-args
      - {{ (.settings | default dict).VLLM_ARGS | default (printf "{tensor_parallel_size: %d, nnodes: $(LWS_GROUP_SIZE), node_rank: $(LWS_WORKER_INDEX), master_addr: $(LWS_LEADER_ADDRESS)}" (mul .gpus .nodes)) | quote }}
      {{- end }}
    envFrom:
      - configMapRef: {name: {{ include "fairlead.settingsName" (list $root .name (include "fairlead.pool.settings" (list $root .))) }}}
    env:
      - name: POD_NAME
        valueFrom:
          fieldRef: {fieldPath: metadata.name}
      - name: POD_IP
        valueFrom:
          fieldRef: {fieldPath: status.podIP}
      {{- if $isGroup }}
      # The address at which ranks of other nodes reach this one.
      - name: VLLM_HOST_IP
        valueFrom:
          fieldRef: {fieldPath: status.podIP}
      {{- else if not $isAdapter }}
      # As many compute threads as the limit allows: the default would count the whole node's.
      - name: OMP_NUM_THREADS
        valueFrom:
          resourceFieldRef: {containerName: worker, resource: limits.cpu}
      {{- end }}
      {{- include "fairlead.secretVariables" $root | nindent 6 }}
      {{- if and .gpus (not $isAdapter) }}
      {{- include "fairlead.hubVariable" $root | nindent 6 }}
      {{- end }}
    {{- if not $isRanks }}
    ports:
      - {name: grpc, containerPort: 7100}
      {{- if $root.Values.monitoring }}
      - {name: metrics, containerPort: 9464}
      {{- end }}
    # It listens when its model is loaded: 5 min for the first conversion or download, 30 min on a GPU, 1 h with vLLM.
    startupProbe:
      grpc: {port: 7100, service: live}
      periodSeconds: 2
      failureThreshold: {{ eq (include "fairlead.pool.engine" .) "vllm" | ternary 1800 (.gpus | empty | ternary 150 900) }}
    livenessProbe:
      grpc: {port: 7100, service: live}
      periodSeconds: 10
      timeoutSeconds: 5
    readinessProbe:
      grpc: {port: 7100}
      periodSeconds: 5
    {{- end }}
    {{- if $isAdapter }}
    resources:
      requests: {cpu: "1", memory: 256Mi, ephemeral-storage: 128Mi}
      limits: {cpu: "2", memory: 512Mi, ephemeral-storage: 1Gi}
    {{- else }}
    resources: {{- include "fairlead.pool.resources" . | nindent 6 }}
    {{- end }}
    securityContext: {{- include "fairlead.confined" . | nindent 6 }}
    volumeMounts:
      {{- if $isAdapter }}
      - {name: tmp, mountPath: /tmp}
      {{- else }}
      {{- include "fairlead.worker.mounts" . | nindent 6 }}
      {{- end }}
volumes:
  {{- if $isGroup }}
  # Lost with the pod: give weights that many nodes can read, or images with them, where downloads take too long.
  - name: cache
    emptyDir: {sizeLimit: {{ $storage }}}
  {{- else if not $storage }}
  - name: cache
    emptyDir: {sizeLimit: 4Gi}
  {{- end }}
  - name: tmp
    emptyDir: {sizeLimit: 1Gi}
  {{- if ne (include "fairlead.pool.engine" .) "transformers" }}
  # Ranks exchange batches and tensors through it; what is in it counts as the container's memory.
  - name: shm
    emptyDir: {medium: Memory, sizeLimit: 8Gi}
  {{- end }}
  {{- with $weights.claim }}
  - name: weights
    persistentVolumeClaim: {claimName: {{ . }}, readOnly: true}
  {{- end }}
{{- end }}
{{- end }}

{{/* A `vllm serve` beside an adapter, ready before it starts, and there until it has drained: (list $ pool) */}}
{{- define "fairlead.engine" -}}
{{- $root := index . 0 }}
{{- $told := include "fairlead.pool.settings" . | fromYaml }}
{{- with index . 1 }}
{{- $serve := .serve | default dict }}
- name: engine
  restartPolicy: Always
  image: {{ $serve.image | default "docker.io/vllm/vllm-openai:v0.32.0" }}
  command: [vllm, serve, {{ .model | quote }}]
  args:
    - --host=127.0.0.1
    - --port=8000
    - --max-num-seqs={{ $told.FAIRLEAD_ADAPTER_MAX_RUNNING }}
    - --max-num-batched-tokens={{ $told.FAIRLEAD_ADAPTER_TOKEN_BUDGET }}
    - --long-prefill-token-threshold={{ div $told.FAIRLEAD_ADAPTER_TOKEN_BUDGET 4 }}
    - '--kv-events-config={"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "tcp://127.0.0.1:5557", "replay_endpoint": "tcp://127.0.0.1:5558"}'
    {{- if gt (int .gpus) 1 }}
    - --tensor-parallel-size={{ .gpus }}
    {{- end }}
    {{- range $serve.args }}
    - {{ . | quote }}
    {{- end }}
  env:
    - {name: HOME, value: /var/cache/fairlead}
    - {name: HF_HOME, value: /var/cache/fairlead/huggingface}
    {{- include "fairlead.hubVariable" $root | nindent 4 }}
  # 1 h: the first start downloads the weights, compiles and captures graphs.
  startupProbe:
    exec: {command: [curl, -sf, "http://127.0.0.1:8000/health"]}
    periodSeconds: 5
    failureThreshold: 720
  resources: {{- include "fairlead.pool.resources" . | nindent 4 }}
  securityContext: {{- include "fairlead.confined" . | nindent 4 }}
  volumeMounts: {{- include "fairlead.worker.mounts" . | nindent 4 }}
{{- end }}
{{- end }}

{{/* The volumes of what computes. */}}
{{- define "fairlead.worker.mounts" -}}
- {name: cache, mountPath: /var/cache/fairlead}
- {name: tmp, mountPath: /tmp}
{{- if ne (include "fairlead.pool.engine" .) "transformers" }}
- {name: shm, mountPath: /dev/shm}
{{- end }}
{{- if (.weights | default dict).claim }}
- {name: weights, mountPath: /weights, readOnly: true}
{{- end }}
{{- end }}

{{- define "fairlead.hubVariable" -}}
# For models that the hub gives to members only.
- name: HF_TOKEN
  valueFrom:
    secretKeyRef: {name: {{ .Values.secrets.hub }}, key: HF_TOKEN, optional: true}
{{- end }}
