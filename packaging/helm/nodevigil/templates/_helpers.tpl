{{- define "nodevigil.labels" -}}
app.kubernetes.io/name: nodevigil
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "nodevigil.image" -}}
{{ .Values.image.repository }}{{ with .Values.image.digest }}@{{ . }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "nodevigil.apiServer" -}}
{{- with .Values.apiServer }}
{{- if .host -}}
- {name: KUBERNETES_SERVICE_HOST, value: {{ .host | quote }}}
- {name: KUBERNETES_SERVICE_PORT, value: {{ .port | quote }}}
{{- end }}
{{- end }}
{{- end }}

{{- /* The settings files of the pods. */ -}}
{{- define "nodevigil.settings" -}}
{{- with .Values.podMonitor }}
{{- if .enabled }}
10-metrics.toml: {{ printf "metrics.listen = %q\n" .listen | toJson }}
{{- end }}
{{- end }}
20-settings.toml: {{ toJson .Values.settings }}
{{- end }}
