// Prints every field of kubelet.config.k8s.io/v1beta1 KubeletConfiguration of the pinned module, one a line, sorted:
// path, kind, and the default of a file that leaves it out (JSON; empty if it has none).
package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	defaults "k8s.io/kubernetes/pkg/kubelet/apis/config/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/eviction"
)

var lines []string

func kind(t reflect.Type) (string, reflect.Type) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[metav1.Duration]():
		return "duration", nil
	case reflect.TypeFor[logsapi.TimeOrMetaDuration]():
		return "flexible", nil
	case reflect.TypeFor[metav1.Time]():
		return "string", nil
	case reflect.TypeFor[resource.Quantity](), reflect.TypeFor[resource.QuantityValue]():
		return "quantity", nil
	}
	switch t.Kind() {
	case reflect.Bool:
		return "bool", nil
	case reflect.Int32:
		return "int32", nil
	case reflect.Int64, reflect.Int:
		return "int64", nil
	case reflect.Uint32:
		return "uint32", nil
	case reflect.Float64:
		return "float", nil
	case reflect.String:
		return "string", nil
	case reflect.Slice:
		inner, object := kind(t.Elem())
		return "list " + inner, object
	case reflect.Map:
		inner, object := kind(t.Elem())
		return "map " + inner, object
	case reflect.Struct:
		return "object", t
	}
	return "?" + t.String(), nil
}

func walk(prefix string, t reflect.Type, values any) {
	for i := range t.NumField() {
		field := t.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" {
			if strings.Contains(options, "inline") {
				walk(prefix, field.Type, values)
			} else {
				panic(field.Name)
			}
			continue
		}
		value, has := any(nil), false
		if m, ok := values.(map[string]any); ok {
			value, has = m[name]
		}
		k, object := kind(field.Type)
		text := ""
		if has && object == nil {
			b, err := json.Marshal(value)
			if err != nil {
				panic(err)
			}
			text = string(b)
		}
		if text != "" && field.Type.Kind() != reflect.Pointer && field.Type.Kind() != reflect.Slice && field.Type.Kind() != reflect.Map {
			text = "unless zero " + text // no pointer: a written zero is taken for nothing
		}
		lines = append(lines, strings.TrimRight(fmt.Sprintf("%s\t%s\t%s", prefix+name, k, text), "\t"))
		if object != nil {
			if strings.HasPrefix(k, "list") {
				walk(prefix+name+"[].", object, nil)
			} else {
				walk(prefix+name+".", object, value)
			}
		}
	}
}

func main() {
	config := kubeletv1beta1.KubeletConfiguration{}
	defaults.SetDefaults_KubeletConfiguration(&config)
	config.EvictionHard = eviction.DefaultEvictionHard
	text, err := json.Marshal(config)
	if err != nil {
		panic(err)
	}
	var values map[string]any
	if err := json.Unmarshal(text, &values); err != nil {
		panic(err)
	}
	walk("", reflect.TypeFor[kubeletv1beta1.KubeletConfiguration](), values)
	sort.Strings(lines)
	fmt.Println(strings.Join(lines, "\n"))
}
