package main

import (
	"bytes"
	"crypto/md5"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"
	ghodss "github.com/ghodss/yaml"
	"github.com/vincent-petithory/dataurl"
	yaml "gopkg.in/yaml.v2"
)

// saltHex is what goes into the hash of a rendered config before its YAML.
const saltHex = "107ccee48b38afaf4fe586769d9ad36e195d2ffdac6a2507ae0da0b96e115734" +
	"db830cceda8d7487bcb5c097e93e7ea54053b3770fa8d0c5926b3ae385bcee1a" +
	"211aebca20ad1fea2990944f06ce1716"

// opYAML returns the YAML of a JSON text. The text comes either verbatim in
// "json", or as a value in "value", which is first encoded the way Go's
// encoding/json encodes a raw message (compact, HTML-safe).
func opYAML(req request) (response, error) {
	text := []byte{}
	if req.JSON != nil {
		text = []byte(*req.JSON)
	} else {
		encoded, err := json.Marshal(req.Value)
		if err != nil {
			return nil, err
		}
		text = encoded
	}
	out, err := ghodss.JSONToYAML(text)
	if err != nil {
		return nil, err
	}
	return response{"yaml": string(out)}, nil
}

// opHash returns the YAML of a MachineConfigSpec and the digest a rendered
// config is named after.
func opHash(req request) (response, error) {
	compact, err := json.Marshal(json.RawMessage(req.Spec))
	if err != nil {
		return nil, err
	}
	out, err := ghodss.JSONToYAML(compact)
	if err != nil {
		return nil, err
	}
	salt, err := hex.DecodeString(saltHex)
	if err != nil {
		return nil, err
	}
	sum := md5.Sum(bytes.Join([][]byte{salt, out}, nil))
	return response{"yaml": string(out), "md5": hex.EncodeToString(sum[:])}, nil
}

// opDataURL decodes a data URL.
func opDataURL(req request) (response, error) {
	u, err := dataurl.DecodeString(req.URL)
	if err != nil {
		return nil, err
	}
	return response{"base64": base64.StdEncoding.EncodeToString(u.Data)}, nil
}

// opURL splits a URL as net/url does.
func opURL(req request) (response, error) {
	u, err := url.Parse(req.URL)
	if err != nil {
		return nil, err
	}
	return response{"scheme": u.Scheme, "opaque": u.Opaque}, nil
}

// opUnit names the section of every option of a systemd unit file.
func opUnit(req request) (response, error) {
	options, err := unit.Deserialize(strings.NewReader(req.Text))
	if err != nil {
		return nil, err
	}
	sections := make([]string, 0, len(options))
	for _, o := range options {
		sections = append(sections, o.Section)
	}
	return response{"sections": sections}, nil
}

// The version of yaml.v2 is part of the contract, not only one of ghodss/yaml's
// own requirements: naming it here keeps it a direct requirement.
var _ = yaml.Marshal
