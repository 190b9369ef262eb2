{{/* What every pod has: (list $ "gateway" $selector "pod-template-hash"). Over zones and nodes as far as there are several;
     a cluster of one node still gets all. Links would set FAIRLEAD_* variables that no service reads. */}}
{{- define "fairlead.pod" -}}
{{- $root := index . 0 -}}
serviceAccountName: {{ $root.Release.Name }}-{{ index . 1 }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- if and $root.Values.priority (ne (index . 1) "worker") }}
priorityClassName: {{ include "fairlead.priorityClass" $root }}
{{- end }}
{{- with $root.Values.images.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{/* The class is the cluster's, so its name is of one namespace, too. */}}
{{- define "fairlead.priorityClass" -}}
{{ eq .Release.Namespace .Release.Name | ternary .Release.Name (printf "%s.%s" .Release.Namespace .Release.Name) }}-control-plane
{{- end }}

{{- define "fairlead.spread" -}}
{{- $hash := index . 1 }}
{{- $selector := index . 0 }}
topologySpreadConstraints:
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- $selector | nindent 8 }}
    matchLabelKeys: [{{ $hash }}]
  {{- end }}
{{- end }}

{{- define "fairlead.user" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "fairlead.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "fairlead.secretVariables" -}}
- name: FAIRLEAD_SECRET
  valueFrom:
    secretKeyRef: {name: {{ .Values.secrets.cluster }}, key: FAIRLEAD_SECRET}
# While one secret replaces another (docs/operations.md).
- name: FAIRLEAD_ACCEPTED_SECRET
  valueFrom:
    secretKeyRef: {name: {{ .Values.secrets.cluster }}, key: FAIRLEAD_ACCEPTED_SECRET, optional: true}
{{- end }}

{{- define "fairlead.redisVariables" -}}
{{- if .Values.redis.url }}
{{- with .Values.redis.password }}
- name: REDIS_PASSWORD
  valueFrom:
    secretKeyRef: {name: {{ .secret }}, key: {{ .key }}}
{{- end }}
- {name: FAIRLEAD_REDIS, value: {{ .Values.redis.password | empty | ternary .Values.redis.url (regexReplaceAll "^(rediss?://)(([^:@/]*)(:[^@]*)?@)?" .Values.redis.url "${1}${3}:$(REDIS_PASSWORD)@") | quote }}}
{{- else }}
- {name: FAIRLEAD_REDIS, value: "redis://:$(FAIRLEAD_SECRET)@{{ .Release.Name }}-redis:6379"}
{{- end }}
{{- end }}

{{/* For Prometheus without its operator. */}}
{{- define "fairlead.scrape" -}}
prometheus.io/scrape: "true"
prometheus.io/port: "9464"
{{- end }}

{{/* A node can always be drained, one pod at a time; and an identity without rights: (list $ "gateway" $selector) */}}
{{- define "fairlead.budget" -}}
{{- $root := index . 0 -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{- include "fairlead.metadata" (list $root (index . 1)) | nindent 2 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels: {{- index . 2 | nindent 6 }}
{{- end }}

{{- define "fairlead.identity" -}}
apiVersion: v1
kind: ServiceAccount
metadata: {{- include "fairlead.metadata" . | nindent 2 }}
automountServiceAccountToken: false
{{- end }}
