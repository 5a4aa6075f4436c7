// Command openapi reads the OpenAPI 2 document of an API server as client-go does, and checks that tools can use it: it
// equals what gnostic makes of the JSON, and every served kind has a type for structured merges, as Argo CD needs it.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"

	openapi "github.com/google/gnostic-models/openapiv2"
	yaml "go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"
	models "k8s.io/kube-openapi/pkg/util/proto"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "where the API is")
	flag.Parse()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	check(err)
	client, err := discovery.NewDiscoveryClientForConfig(config)
	check(err)
	document, err := client.OpenAPISchema()
	check(err)
	text, err := client.RESTClient().Get().AbsPath("/openapi/v2").SetHeader("Accept", "application/json").Do(context.TODO()).Raw()
	check(err)
	parsed, err := openapi.ParseDocument(text)
	check(err)
	canonical(document.ProtoReflect())
	canonical(parsed.ProtoReflect())
	if !proto.Equal(document, parsed) {
		fail("the protobuf differs from the JSON: %s", difference(document, parsed))
	}
	data, err := models.NewOpenAPIData(document)
	check(err)
	types, err := managedfields.NewGVKParser(data, false)
	check(err)
	_, lists, err := client.ServerGroupsAndResources()
	check(err)
	count := 0
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		check(err)
		for _, resource := range list.APIResources {
			verbs := strings.Join(resource.Verbs, " ")
			if strings.Contains(resource.Name, "/") || !strings.Contains(verbs, "patch") {
				continue
			}
			kind := version.WithKind(resource.Kind)
			if types.Type(kind) == nil {
				fail("no type for %v", kind)
			}
			checkParameters(document, kind)
			count++
		}
	}
	fmt.Printf("%d kinds\n", count)
}

// checkParameters looks for the parameters by which kubectl finds out whether the server validates fields.
func checkParameters(document *openapi.Document, kind schema.GroupVersionKind) {
	shared := map[string]string{}
	for _, parameter := range document.GetParameters().GetAdditionalProperties() {
		name := parameter.GetValue().GetNonBodyParameter().GetQueryParameterSubSchema().GetName()
		shared["#/parameters/"+parameter.GetName()] = name
	}
	for _, path := range document.GetPaths().GetPath() {
		patch := path.GetValue().GetPatch()
		for _, extension := range patch.GetVendorExtension() {
			var found schema.GroupVersionKind
			if extension.GetName() != "x-kubernetes-group-version-kind" || yaml.Unmarshal([]byte(extension.GetValue().GetYaml()), &found) != nil || found != kind {
				continue
			}
			for _, item := range patch.GetParameters() {
				name := item.GetParameter().GetNonBodyParameter().GetQueryParameterSubSchema().GetName()
				if name == "fieldValidation" || shared[item.GetJsonReference().GetXRef()] == "fieldValidation" {
					return
				}
			}
		}
	}
	fail("the patch of %v declares no fieldValidation", kind)
}

// canonical writes every value of unknown type in one form, because its text is YAML in any style.
func canonical(message protoreflect.Message) {
	if value, is := message.Interface().(*openapi.Any); is {
		var decoded any
		check(yaml.Unmarshal([]byte(value.Yaml), &decoded))
		text, err := json.Marshal(decoded)
		check(err)
		value.Yaml = string(text)
		return
	}
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if field.Kind() != protoreflect.MessageKind {
			return true
		}
		if field.IsList() {
			for index := range value.List().Len() {
				canonical(value.List().Get(index).Message())
			}
		} else {
			canonical(value.Message())
		}
		return true
	})
}

// difference names the first definition or path that is not the same.
func difference(one, other *openapi.Document) string {
	mine, theirs := one.GetDefinitions().GetAdditionalProperties(), other.GetDefinitions().GetAdditionalProperties()
	for index := range min(len(mine), len(theirs)) {
		if !proto.Equal(mine[index], theirs[index]) {
			return fmt.Sprintf("\n%v\n%v", mine[index], theirs[index])
		}
	}
	left, right := one.GetPaths().GetPath(), other.GetPaths().GetPath()
	for index := range min(len(left), len(right)) {
		if !proto.Equal(left[index], right[index]) {
			return fmt.Sprintf("\n%v\n%v", left[index], right[index])
		}
	}
	return fmt.Sprintf("%d and %d definitions, %d and %d paths", len(mine), len(theirs), len(left), len(right))
}

func fail(format string, values ...any) {
	check(fmt.Errorf(format, values...))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
