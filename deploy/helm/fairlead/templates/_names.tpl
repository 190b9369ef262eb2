{{/* Name, namespace and labels of an object: (list $ "gateway") */}}
{{- define "fairlead.metadata" -}}
name: {{ (index . 0).Release.Name }}-{{ index . 1 }}
{{ include "fairlead.identification" . }}
{{- end }}

{{- define "fairlead.identification" -}}
{{- $root := index . 0 -}}
namespace: {{ $root.Release.Namespace }}
labels:
  app.kubernetes.io/name: {{ $root.Release.Name }}-{{ index . 1 }}
  app.kubernetes.io/part-of: fairlead
  app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ $root.Release.Service }}
{{- end }}

{{/* What selects the pods of a service: (list $ "gateway") */}}
{{- define "fairlead.selector" -}}
app.kubernetes.io/name: {{ (index . 0).Release.Name }}-{{ index . 1 }}
{{- end }}

{{/* An image of ours: (list $ "worker") */}}
{{- define "fairlead.image" -}}
{{- $root := index . 0 -}}
{{- $digest := index $root.Values.images.digests (index . 1) -}}
{{- $version := empty $digest | ternary (printf ":%s" ($root.Values.images.tag | default $root.Chart.AppVersion)) (printf "@%s" $digest) -}}
{{ $root.Values.images.registry }}/{{ index . 1 }}{{ $version }}
{{- end }}

{{/* The addresses of both schedulers. */}}
{{- define "fairlead.schedulers" -}}
{{- $name := .Release.Name -}}
{{ $name }}-scheduler-0.{{ $name }}-schedulers:7050,{{ $name }}-scheduler-1.{{ $name }}-schedulers:7050
{{- end }}

{{/* The data of a ConfigMap, from files of variables and from options that are set here:
     (list $ "GATEWAY" (list "files/gateway.env") $options) */}}
{{- define "fairlead.settings" -}}
{{- $root := index . 0 -}}
{{- $service := index . 1 -}}
{{- $data := dict -}}
{{- range index . 2 }}
  {{- range $root.Files.Lines . }}
    {{- if and . (not (hasPrefix "#" .)) }}
      {{- $pair := splitn "=" 2 . }}
      {{- $_ := set $data $pair._0 $pair._1 }}
    {{- end }}
  {{- end }}
{{- end }}
{{- range $option, $value := index . 3 }}
  {{- $_ := set $data (printf "FAIRLEAD_%s_%s" $service $option) (kindIs "string" $value | ternary $value (toJson $value)) }}
{{- end }}
{{- toYaml $data }}
{{- end }}

{{/* The settings of a service in a ConfigMap whose name follows from them: a change rolls the pods, and those that have not been
     rolled yet, or are rolled back, start with the settings of their template. So it stays: (list $ "gateway" $settings) */}}
{{- define "fairlead.settingsName" -}}
{{ (index . 0).Release.Name }}-{{ index . 1 }}-{{ index . 2 | sha256sum | trunc 10 }}
{{- end }}

{{- define "fairlead.settingsMap" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "fairlead.settingsName" . }}
  {{- include "fairlead.identification" . | nindent 2 }}
  annotations: {helm.sh/resource-policy: keep}
data: {{- index . 2 | nindent 2 }}
{{- end }}
