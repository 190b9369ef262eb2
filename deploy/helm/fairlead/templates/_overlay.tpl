{{/* YAML with an overlay of the operator's on it, unchanged without one: (list $text $overlay) */}}
{{- define "fairlead.overlaid" -}}
{{- if index . 1 }}
{{- (include "fairlead.merged" (list (index . 0 | fromYaml) (index . 1)) | fromJson).merged | toYaml }}
{{- else }}
{{- index . 0 }}
{{- end }}
{{- end }}

{{/* As `kubectl patch` merges: maps by key, where null removes; lists of what has a name (of mounts: a path) by that; all else
     is replaced. Returns JSON: (list $base $overlay) */}}
{{- define "fairlead.merged" -}}
{{- $base := index . 0 }}
{{- $overlay := index . 1 }}
{{- $merged := $overlay }}
{{- if and (kindIs "map" $base) (kindIs "map" $overlay) }}
  {{- $merged = deepCopy $base }}
  {{- range $key, $value := $overlay }}
    {{- if kindIs "invalid" $value }}
      {{- $_ := unset $merged $key }}
    {{- else }}
      {{- $_ := set $merged $key (include "fairlead.merged" (list (get $merged $key) $value) | fromJson).merged }}
    {{- end }}
  {{- end }}
{{- else if and (kindIs "slice" $base) (kindIs "slice" $overlay) }}
  {{- $id := "" }}
  {{- range $overlay }}
    {{- if kindIs "map" . }}
      {{- $id = hasKey . "mountPath" | ternary "mountPath" (hasKey . "name" | ternary "name" $id) }}
    {{- end }}
  {{- end }}
  {{- if $id }}
    {{- $merged = list }}
    {{- $added := dict }}
    {{- range $overlay }}{{ $_ := set $added (get . $id) . }}{{ end }}
    {{- range $base }}
      {{- if hasKey $added (get . $id) }}
        {{- $merged = append $merged (include "fairlead.merged" (list . (get $added (get . $id))) | fromJson).merged }}
        {{- $_ := unset $added (get . $id) }}
      {{- else }}
        {{- $merged = append $merged . }}
      {{- end }}
    {{- end }}
    {{- range $overlay }}
      {{- if hasKey $added (get . $id) }}{{ $merged = append $merged . }}{{ end }}
    {{- end }}
  {{- end }}
{{- end }}
{{- dict "merged" $merged | toJson }}
{{- end }}
