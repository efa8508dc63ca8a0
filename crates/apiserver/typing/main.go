// Prints what the schemas of k8s-openapi leave out about the built-in types: how lists and maps
// merge, and which fields Go writes even when they are empty. `generate` runs it.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sort"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Every type that the server has, as in `src/builtin.rs`.
var roots = []any{
	corev1.ConfigMap{}, corev1.Endpoints{}, corev1.Event{}, corev1.LimitRange{},
	corev1.Namespace{}, corev1.Node{}, corev1.PersistentVolumeClaim{},
	corev1.PersistentVolume{}, corev1.Pod{}, corev1.ReplicationController{},
	corev1.ResourceQuota{}, corev1.Secret{}, corev1.ServiceAccount{}, corev1.Service{},
	appsv1.ControllerRevision{}, appsv1.DaemonSet{}, appsv1.Deployment{}, appsv1.ReplicaSet{},
	appsv1.StatefulSet{},
	batchv1.CronJob{}, batchv1.Job{},
	authorizationv1.SubjectAccessReview{},
	networkingv1.Ingress{}, networkingv1.IngressClass{}, networkingv1.NetworkPolicy{},
	policyv1.PodDisruptionBudget{},
	rbacv1.ClusterRoleBinding{}, rbacv1.ClusterRole{}, rbacv1.RoleBinding{}, rbacv1.Role{},
	storagev1.StorageClass{}, schedulingv1.PriorityClass{}, coordinationv1.Lease{},
	eventsv1.Event{}, apiextensionsv1.CustomResourceDefinition{},
}

type schema struct {
	Ref        string             `json:"$ref"`
	AllOf      []schema           `json:"allOf"`
	Properties map[string]*schema `json:"properties"`
	Items      *schema            `json:"items"`
	Default    any                `json:"default"`
	ListType   string             `json:"x-kubernetes-list-type"`
	ListKeys   []string           `json:"x-kubernetes-list-map-keys"`
	MapType    string             `json:"x-kubernetes-map-type"`
	MergeKey   string             `json:"x-kubernetes-patch-merge-key"`
	Strategy   string             `json:"x-kubernetes-patch-strategy"`
}

func (s *schema) target() string {
	ref := s.Ref
	if len(s.AllOf) == 1 {
		ref = s.AllOf[0].Ref
	}
	return ref[strings.LastIndex(ref, "/")+1:]
}

// definition is the name under which OpenAPI documents have a Go type.
func definition(t reflect.Type) string {
	path := strings.Replace(t.PkgPath(), "k8s.io", "io.k8s", 1)
	return strings.ReplaceAll(path, "/", ".") + "." + t.Name()
}

// The value that an empty field is written with, or "" when it is left out.
func zero(t reflect.Type, options string) string {
	if strings.Contains(options, "omitzero") {
		return ""
	}
	switch t {
	case reflect.TypeOf(metav1.Time{}), reflect.TypeOf(metav1.MicroTime{}):
		return "null"
	case reflect.TypeOf(intstr.IntOrString{}):
		return "0"
	case reflect.TypeOf(resource.Quantity{}):
		return `"0"`
	}
	if t.Kind() == reflect.Struct {
		return "{}"
	}
	if strings.Contains(options, "omitempty") {
		return ""
	}
	switch t.Kind() {
	case reflect.String:
		return `""`
	case reflect.Bool:
		return "false"
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Float64:
		return "0"
	default:
		return "null"
	}
}

// The zeros of every struct that is reachable from `t`, by definition and field.
func walk(t reflect.Type, zeros map[string]map[string]string) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		walk(t.Elem(), zeros)
	case reflect.Struct:
		name := definition(t)
		if _, seen := zeros[name]; !seen {
			zeros[name] = map[string]string{}
			fields(t, zeros[name], zeros)
		}
	}
}

func fields(t reflect.Type, own map[string]string, zeros map[string]map[string]string) {
	for i := range t.NumField() {
		field := t.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" && field.Type.Kind() == reflect.Struct {
			fields(field.Type, own, zeros)
			continue
		}
		if name == "" || name == "-" {
			continue
		}
		if text := zero(field.Type, options); text != "" {
			own[name] = text
		}
		walk(field.Type, zeros)
	}
}

func documents(folder string) map[string]*schema {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	check(err)
	all := map[string]*schema{}
	for _, file := range files {
		var document struct {
			Components struct {
				Schemas map[string]*schema `json:"schemas"`
			} `json:"components"`
		}
		text, err := os.ReadFile(file)
		check(err)
		check(json.Unmarshal(text, &document))
		for name, schema := range document.Components.Schemas {
			all[name] = schema
		}
	}
	return all
}

func main() {
	all := documents(os.Args[1])
	zeros := map[string]map[string]string{}
	for _, root := range roots {
		walk(reflect.TypeOf(root), zeros)
	}
	// Fields that are keys of a list, whose defaults therefore count.
	keys := map[string][]string{}
	for name := range zeros {
		if all[name] == nil {
			continue
		}
		for _, field := range all[name].Properties {
			if field.ListType == "map" {
				keys[field.Items.target()] = append(keys[field.Items.target()], field.ListKeys...)
			}
		}
	}
	names := make([]string, 0, len(zeros))
	for name := range zeros {
		if all[name] != nil {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	for _, name := range names {
		print(name, all[name], zeros[name], keys[name])
	}
}

func print(name string, definition *schema, zeros map[string]string, keys []string) {
	lines := []string{}
	if definition.MapType == "atomic" {
		lines = append(lines, ". map=atomic")
	}
	names := make([]string, 0, len(definition.Properties))
	for field := range definition.Properties {
		names = append(names, field)
	}
	sort.Strings(names)
	for _, field := range names {
		facts := field
		property := definition.Properties[field]
		switch property.ListType {
		case "map":
			facts += " list=" + strings.Join(property.ListKeys, ",")
		case "set":
			facts += " list=set"
		}
		if property.MapType != "" {
			facts += " map=" + property.MapType
		}
		if property.MergeKey != "" {
			facts += " merge=" + property.MergeKey
		} else if strings.HasPrefix(property.Strategy, "merge") {
			facts += " merge=set"
		}
		if property.Default != nil && slices.Contains(keys, field) {
			text, err := json.Marshal(property.Default)
			check(err)
			facts += " default=" + string(text)
		}
		if text := zeros[field]; text != "" {
			facts += " zero=" + text
		}
		if facts != field {
			lines = append(lines, facts)
		}
	}
	if len(lines) > 0 {
		fmt.Printf("[%s]\n%s\n", name, strings.Join(lines, "\n"))
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
