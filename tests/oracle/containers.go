package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/BurntSushi/toml"
	"github.com/containers/image/v5/pkg/sysregistriesv2"
	"github.com/containers/image/v5/signature"
	"github.com/containers/image/v5/types"
	storageconfig "github.com/containers/storage/pkg/config"
	storage "github.com/containers/storage/types"
)

func init() {
	operations["policy"] = opPolicy
	operations["registries-conf"] = opRegistriesConf
	operations["storage-conf"] = opStorageConf
	operations["storage-edit"] = opStorageEdit
	operations["toml"] = opTOML
}

// opPolicy reads policy.json as podman, skopeo and CRI-O do: unknown and missing fields are errors.
//
//	policy  text -> policy: the same policy, written again
func opPolicy(req request) (response, error) {
	policy, err := signature.NewPolicyFromBytes([]byte(req.Text))
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(policy)
	if err != nil {
		return nil, err
	}
	return response{"policy": json.RawMessage(text)}, nil
}

// opRegistriesConf reads registries.conf with all checks of the library.
//
//	registries-conf  text -> registries, search: what the library found; unknown: keys that it ignored;
//	                 encoded: the text, decoded and encoded again
func opRegistriesConf(req request) (response, error) {
	path, done, err := file("registries.conf", req.Text)
	if err != nil {
		return nil, err
	}
	defer done()
	nowhere := filepath.Join(filepath.Dir(path), "none.d")
	context := &types.SystemContext{SystemRegistriesConfPath: path, SystemRegistriesConfDirPath: nowhere}
	found, err := sysregistriesv2.TryUpdatingCache(context)
	if err != nil {
		return nil, err
	}
	unknown, err := ignoredKeys(req.Text, &sysregistriesv2.V2RegistriesConf{})
	if err != nil {
		return nil, err
	}
	encoded, err := encoded(&sysregistriesv2.V2RegistriesConf{}, req.Text)
	if err != nil {
		return nil, err
	}
	return response{
		"encoded":    encoded,
		"registries": found.Registries,
		"search":     found.UnqualifiedSearchRegistries,
		"unknown":    unknown,
	}, nil
}

// opStorageConf reads storage.conf as the storage library of podman and CRI-O does.
//
//	storage-conf  text -> driver, root, options: what the library passes to its driver; unknown: keys that it ignored
func opStorageConf(req request) (response, error) {
	path, done, err := file("storage.conf", req.Text)
	if err != nil {
		return nil, err
	}
	defer done()
	var options storage.StoreOptions
	if err := storage.ReloadConfigurationFile(path, &options); err != nil {
		return nil, err
	}
	unknown, err := ignoredKeys(req.Text, &storage.TomlConfig{})
	if err != nil {
		return nil, err
	}
	return response{
		"driver":  options.GraphDriverName,
		"root":    options.GraphRoot,
		"options": options.GraphDriverOptions,
		"unknown": unknown,
	}, nil
}

// opStorageEdit sets options in storage.conf by decoding it into the library's structure and encoding
// that again.
//
//	storage-edit  value: base, size, layers, images -> text
func opStorageEdit(req request) (response, error) {
	var in struct {
		Base   string   `json:"base"`
		Size   string   `json:"size"`
		Layers []string `json:"layers"`
		Images []string `json:"images"`
	}
	if err := json.Unmarshal(req.Value, &in); err != nil {
		return nil, err
	}
	var conf struct {
		Storage struct {
			Driver    string                                `toml:"driver"`
			RunRoot   string                                `toml:"runroot"`
			GraphRoot string                                `toml:"graphroot"`
			Options   struct{ storageconfig.OptionsConfig } `toml:"options"`
		} `toml:"storage"`
	}
	if _, err := toml.Decode(in.Base, &conf); err != nil {
		return nil, err
	}
	options := &conf.Storage.Options
	if in.Size != "" {
		options.Size = in.Size
	}
	if len(in.Layers) > 0 {
		options.AdditionalLayerStores = in.Layers
	}
	if len(in.Images) > 0 {
		options.AdditionalImageStores = in.Images
	}
	text, err := toml.Marshal(conf)
	return response{"text": string(text)}, err
}

// opTOML encodes tables.
//
//	toml  value: tables -> text
func opTOML(req request) (response, error) {
	var tables map[string]any
	decoder := json.NewDecoder(bytes.NewReader(req.Value))
	decoder.UseNumber()
	if err := decoder.Decode(&tables); err != nil {
		return nil, err
	}
	text, err := toml.Marshal(tables)
	return response{"text": string(text)}, err
}

// encoded decodes a TOML text into a structure and encodes that again.
func encoded(into any, text string) (string, error) {
	if _, err := toml.Decode(text, into); err != nil {
		return "", err
	}
	again, err := toml.Marshal(into)
	return string(again), err
}

// ignoredKeys lists the keys of a TOML text for which a type has no field.
func ignoredKeys(text string, into any) ([]string, error) {
	meta, err := toml.Decode(text, into)
	if err != nil {
		return nil, fmt.Errorf("TOML: %w", err)
	}
	keys := []string{}
	for _, key := range meta.Undecoded() {
		keys = append(keys, key.String())
	}
	return keys, nil
}

// file writes a text to a temporary file, for libraries that only read files.
func file(name, text string) (path string, done func(), err error) {
	dir, err := os.MkdirTemp("", "oracle")
	if err != nil {
		return "", nil, err
	}
	done = func() { os.RemoveAll(dir) }
	path = filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		done()
		return "", nil, err
	}
	return path, done, nil
}
