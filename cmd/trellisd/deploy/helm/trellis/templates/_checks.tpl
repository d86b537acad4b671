{{/* What a schema cannot say. */}}
{{- define "trellis.checks" -}}
{{- $issuer := dig "issuer" "name" "" .Values.certManager }}
{{- if gt (int .Values.members) 1 }}
{{- if not .Values.persistence.enabled }}
{{- fail "members of a cluster need persistence.enabled: one that has lost its disk does not vote" }}
{{- end }}
{{- if not (or .Values.cluster.secretName $issuer) }}
{{- fail "members of a cluster need a certificate: give cluster.secretName or certManager.issuer" }}
{{- end }}
{{- end }}
{{- if and .Values.tls.enabled (not (or .Values.tls.secretName $issuer)) }}
{{- fail "TLS needs a certificate: give tls.secretName or certManager.issuer" }}
{{- end }}
{{- end }}
