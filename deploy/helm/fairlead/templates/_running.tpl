{{/* What runs in the cluster already, which `helm template` and `--dry-run=client` do not see. */}}

{{/* The number of replicas that a workload is to have: what its values say; where they say nothing, as many as run, since a
     number that Helm set before would fall to one: (list $ "StatefulSet" $name $replicas). Empty for a new workload. */}}
{{- define "fairlead.replicas" -}}
{{- $root := index . 0 }}
{{- $kind := index . 1 }}
{{- $group := eq $kind "LeaderWorkerSet" | ternary "leaderworkerset.x-k8s.io/v1" "apps/v1" }}
{{- $running := lookup $group $kind $root.Release.Namespace (printf "%s-%s" $root.Release.Name (index . 2)) }}
{{- with index . 3 | default (dig "spec" "replicas" "" $running) }}
replicas: {{ . }}
{{- end }}
{{- end }}

{{/* Refuses what Kubernetes would refuse in the middle of an upgrade, when settings have been changed already: (list $ .) */}}
{{- define "fairlead.pool.checkVolumes" -}}
{{- $root := index . 0 }}
{{- $running := lookup "apps/v1" "StatefulSet" $root.Release.Namespace (printf "%s-%s" $root.Release.Name (index . 1).name) }}
{{- if and $running (le (int (index . 1).nodes) 1) }}
  {{- $before := "none" }}
  {{- range dig "spec" "volumeClaimTemplates" list $running }}
    {{- $before = printf "%s of the class %s" .spec.resources.requests.storage (.spec.storageClassName | default "by default") }}
  {{- end }}
  {{- $after := "none" }}
  {{- with include "fairlead.pool.storage" (index . 1) }}
    {{- $after = printf "%s of the class %s" . ((index $ 1).storageClass | default "by default") }}
  {{- end }}
  {{- if ne $before $after }}
    {{- fail (printf "pool %s: the volumes of running workers cannot be changed (before: %s, after: %s). Add a pool with another name and the same model, wait until it serves, then remove this one (deploy/README.md)" (index . 1).name $before $after) }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Refuses to remove the only workers of a model that another pool is to serve, before that does. */}}
{{- define "fairlead.pools.checkRenames" -}}
{{- $root := . }}
{{- $names := list }}
{{- $models := list }}
{{- range .Values.pools }}
  {{- $names = append $names (printf "%s %s-%s" (gt (int .nodes) 1 | ternary "LeaderWorkerSet" "StatefulSet") $root.Release.Name .name) }}
  {{- $models = append $models .model }}
{{- end }}
{{- $served := dict }}
{{- $removed := dict }}
{{- range $kind, $group := dict "StatefulSet" "apps/v1" "LeaderWorkerSet" "leaderworkerset.x-k8s.io/v1" }}
  {{- if $root.Capabilities.APIVersions.Has (printf "%s/%s" $group $kind) }}
  {{- range (lookup $group $kind $root.Release.Namespace "").items }}
    {{- $model := dig "metadata" "annotations" "fairlead/model" "" . }}
    {{- if and $model (eq (dig "metadata" "labels" "fairlead-release" "" .) $root.Release.Name) }}
      {{- if not (has (printf "%s %s" $kind .metadata.name) $names) }}
        {{- $_ := set $removed $model .metadata.name }}
      {{- else if dig "status" "readyReplicas" 0 . }}
        {{- $_ := set $served $model .metadata.name }}
      {{- end }}
    {{- end }}
  {{- end }}
  {{- end }}
{{- end }}
{{- range $model, $pool := $removed }}
  {{- if and (has $model $models) (not (hasKey $served $model)) }}
    {{- fail (printf "pools: %s has the only running workers of %s, whose other pool does not serve yet. Add the new pool, wait until it serves, then remove the old one (deploy/README.md)" $pool $model) }}
  {{- end }}
{{- end }}
{{- end }}
