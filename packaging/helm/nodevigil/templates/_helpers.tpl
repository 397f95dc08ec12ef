{{- define "nodevigil.labels" -}}
app.kubernetes.io/name: nodevigil
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* A file of packaging/kubernetes, whose objects get the labels: list of the file's name and the scope. */ -}}
{{- define "nodevigil.file" -}}
{{- $labels := include "nodevigil.labels" (index . 1) | nindent 4 -}}
{{- regexReplaceAll "(?m)^metadata:$" ((index . 1).Files.Get (index . 0)) (print "metadata:\n  labels:" $labels) }}
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
