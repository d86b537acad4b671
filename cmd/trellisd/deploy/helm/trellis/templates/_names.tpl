{{- define "trellis.name" -}}
{{- if contains "trellis" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-trellis{{ end }}
{{- end }}

{{/* The names of pods are in labels of 63 characters, with a hash behind them. */}}
{{- define "trellis.fullname" -}}
{{- include "trellis.name" . | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "trellis.pods" -}}
{{- include "trellis.fullname" . }}-pods
{{- end }}

{{/* The domain of the pods' names. */}}
{{- define "trellis.domain" -}}
{{- include "trellis.pods" . }}.{{ .Release.Namespace }}.svc
{{- end }}

{{- define "trellis.selector" -}}
app.kubernetes.io/name: trellis
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "trellis.labels" -}}
{{ include "trellis.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "trellis.metadata" -}}
metadata:
  name: {{ include "trellis.fullname" . }}
  namespace: {{ .Release.Namespace }}
  labels: {{- include "trellis.labels" . | nindent 4 }}
{{- end }}

{{- define "trellis.clusterSecret" -}}
{{- .Values.cluster.secretName | default (printf "%s-cluster" (include "trellis.fullname" .)) }}
{{- end }}

{{- define "trellis.tlsSecret" -}}
{{- .Values.tls.secretName | default (printf "%s-tls" (include "trellis.fullname" .)) }}
{{- end }}
