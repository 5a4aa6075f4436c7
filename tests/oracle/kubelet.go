package main

import (
	"bytes"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	k8syaml "k8s.io/apimachinery/pkg/util/yaml"
	kubelet "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

func init() {
	operations["kubelet"] = opKubelet
	operations["kubelet-strict"] = opKubeletStrict
}

// opKubelet reads a kubelet configuration as the Machine Config Operator does and writes it again.
//
//	kubelet  value -> yaml: a JSON value as kubelet.conf
func opKubelet(req request) (response, error) {
	config := &kubelet.KubeletConfiguration{}
	decoder := k8syaml.NewYAMLOrJSONDecoder(bytes.NewReader(req.Value), len(req.Value))
	if err := decoder.Decode(config); err != nil {
		return nil, err
	}
	return encodeKubelet(config)
}

// opKubeletStrict reads kubelet.conf as a kubelet does: no field that it does not know.
//
//	kubelet-strict  text -> yaml: the same configuration, written again
func opKubeletStrict(req request) (response, error) {
	config := &kubelet.KubeletConfiguration{}
	if err := yaml.UnmarshalStrict([]byte(req.Text), config); err != nil {
		return nil, err
	}
	return encodeKubelet(config)
}

func encodeKubelet(config *kubelet.KubeletConfiguration) (response, error) {
	scheme := runtime.NewScheme()
	if err := kubelet.AddToScheme(scheme); err != nil {
		return nil, err
	}
	codecs := serializer.NewCodecFactory(scheme)
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeYAML)
	out, err := runtime.Encode(codecs.EncoderForVersion(info.Serializer, kubelet.SchemeGroupVersion), config)
	if err != nil {
		return nil, err
	}
	return response{"yaml": string(out)}, nil
}
