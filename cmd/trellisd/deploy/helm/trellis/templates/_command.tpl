{{/* The arguments of trellisd, a list in YAML. */}}
{{- define "trellis.command" -}}
- -V
- --http=:11380
- --max-memory=auto
- --stop-delay={{ .Values.stopDelay }}
{{- if .Values.persistence.enabled }}
- --binlog=/var/lib/trellis
{{- end }}
{{- if gt (int .Values.members) 1 }}
{{- $members := list }}
{{- range $i := until (int .Values.members) }}
{{- $name := printf "%s-%d" (include "trellis.fullname" $) $i }}
{{- $members = append $members (printf "%s=%s.%s:11390" $name $name (include "trellis.domain" $)) }}
{{- end }}
- --node=$(POD_NAME)=$(POD_NAME).{{ include "trellis.domain" . }}:11390
- --cluster={{ join "," $members }}
- --cluster-listen=:11390
- --cluster-cert=/etc/trellis/cluster/tls.crt
- --cluster-key=/etc/trellis/cluster/tls.key
- --cluster-ca=/etc/trellis/cluster/ca.crt
{{- range .Values.cluster.adminNames }}
- {{ printf "--cluster-admin-name=%s" . | quote }}
{{- end }}
{{- end }}
{{- if .Values.tls.enabled }}
- --tls-listen=0.0.0.0
- --tls-cert=/etc/trellis/tls/tls.crt
- --tls-key=/etc/trellis/tls/tls.key
{{- if ne .Values.tls.clientAuth "none" }}
- --tls-client-ca=/etc/trellis/tls/ca.crt
- --tls-client-auth={{ .Values.tls.clientAuth }}
{{- end }}
{{- if .Values.tls.plain }}
- --listen=0.0.0.0
{{- end }}
{{- end }}
{{- if .Values.auth.secretName }}
- --auth-file=/etc/trellis/auth/auth
{{- end }}
{{- if .Values.http.secretName }}
- --web-config-file=/etc/trellis/http/web.yml
{{- end }}
{{- range $name, $value := .Values.options }}
{{- if kindIs "slice" $value }}
{{- range $value }}
- {{ printf "--%s=%s" $name . | quote }}
{{- end }}
{{- else if kindIs "bool" $value }}
{{- if $value }}
- --{{ $name }}
{{- end }}
{{- else if kindIs "string" $value }}
- {{ printf "--%s=%s" $name $value | quote }}
{{- else }}
- {{ printf "--%s=%d" $name (int64 $value) | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* The ports of the clients, by name. */}}
{{- define "trellis.ports" -}}
{{- if or (not .Values.tls.enabled) .Values.tls.plain }}
clients: 11300
{{- end }}
{{- if .Values.tls.enabled }}
clients-tls: 11400
{{- end }}
{{- end }}
