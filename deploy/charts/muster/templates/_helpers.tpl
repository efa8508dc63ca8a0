{{/* Names: those of kustomize where the release is called muster. */}}
{{- define "muster.hub" -}}
{{ .Release.Name }}-hub
{{- end }}

{{- define "muster.agent" -}}
{{ .Release.Name }}-agent
{{- end }}

{{/* Labels that pods are selected by; takes (list . "hub"). */}}
{{- define "muster.selector" -}}
app.kubernetes.io/name: muster
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "muster.labels" -}}
{{ include "muster.selector" . }}
{{- with index . 0 }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
{{- end }}

{{/* The account NAME of the release as the subject of a binding; takes (list . NAME). */}}
{{- define "muster.subject" -}}
- kind: ServiceAccount
  name: {{ index . 1 }}
  namespace: {{ (index . 0).Release.Namespace }}
{{- end }}

{{/* A binding of a ClusterRole to an account; takes (list . COMPONENT ROLE ACCOUNT). */}}
{{- define "muster.binding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ index . 2 }}
  labels:
    {{- include "muster.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ index . 2 }}
subjects:
  {{- include "muster.subject" (list (index . 0) (index . 3)) | nindent 2 }}
{{- end }}

{{/* The lease of a component, in its own namespace; takes (list . COMPONENT NAME LEASE). */}}
{{- define "muster.lease" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ index . 2 }}
  labels:
    {{- include "muster.labels" . | nindent 4 }}
rules:
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    resourceNames: [{{ index . 3 }}]
    verbs: [get, update]
  # A create has no name yet that a rule could be for.
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    verbs: [create]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ index . 2 }}
  labels:
    {{- include "muster.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ index . 2 }}
subjects:
  {{- include "muster.subject" (list (index . 0) (index . 2)) | nindent 2 }}
{{- end }}

{{- define "muster.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "muster.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
# Mounted Secrets are readable by this group.
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "muster.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* A process that stands by is ready. */}}
{{- define "muster.probes" -}}
livenessProbe:
  httpGet:
    path: /healthz
    port: telemetry
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet:
    path: /readyz
    port: telemetry
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{/* Where pods go; takes the values of a component. */}}
{{- define "muster.scheduling" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Account, settings, service and network policy; takes (list . COMPONENT NAME). */}}
{{- define "muster.common" -}}
{{- $root := index . 0 }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ index . 2 }}
  labels:
    {{- include "muster.labels" . | nindent 4 }}
---
# Metrics, for Prometheus. Without an address of its own: each process is scraped by itself.
apiVersion: v1
kind: Service
metadata:
  name: {{ index . 2 }}
  labels:
    {{- include "muster.labels" . | nindent 4 }}
spec:
  clusterIP: None
  # A process that is not ready is the one whose metrics are wanted.
  publishNotReadyAddresses: true
  selector:
    {{- include "muster.selector" . | nindent 4 }}
  ports:
    - name: telemetry
      port: 9090
      targetPort: telemetry
{{- with $root.Values.networkPolicy }}
{{- if .enabled }}
---
# The telemetry port has no authentication, and shows names and error texts of works.
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ index $ 2 }}
  labels:
    {{- include "muster.labels" $ | nindent 4 }}
spec:
  podSelector:
    matchLabels:
      {{- include "muster.selector" $ | nindent 6 }}
  policyTypes: [Ingress, Egress]
  {{- if .scrapeFrom }}
  ingress:
    - from:
        {{- toYaml .scrapeFrom | nindent 8 }}
      ports:
        - {port: telemetry, protocol: TCP}
  {{- end }}
  egress:
    # Names.
    - ports:
        - {port: 53, protocol: UDP}
        - {port: 53, protocol: TCP}
    - ports:
        {{- range .egressPorts }}
        - {port: {{ . }}, protocol: TCP}
        {{- end }}
{{- end }}
{{- end }}
{{- end }}
