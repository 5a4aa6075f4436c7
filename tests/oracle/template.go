package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"text/template"
)

func init() {
	operations["template"] = opTemplate
}

// opTemplate executes a template with Go's own engine.
//
//	template  text, value -> out: the template text over the JSON value
func opTemplate(req request) (response, error) {
	data, err := plainValue(req.Value)
	if err != nil {
		return nil, err
	}
	tmpl, err := template.New("t").Funcs(textFuncs).Parse(req.Text)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := tmpl.Execute(&out, data); err != nil {
		return nil, err
	}
	return response{"out": out.String()}, nil
}

// textFuncs are the functions of MCO that need no cluster.
var textFuncs = template.FuncMap{
	"toString": func(v any) string { return fmt.Sprint(v) },
	"indent": func(spaces int, v string) string {
		pad := strings.Repeat(" ", spaces)
		return pad + strings.ReplaceAll(v, "\n", "\n"+pad)
	},
	"skip": func(key string) (any, error) {
		if !regexp.MustCompile(`^[_a-z]\w*$`).MatchString(key) {
			return nil, errors.New("invalid key for skipKey")
		}
		return fmt.Sprintf("{{.%s}}", key), nil
	},
	"join": strings.Join,
	"urlHost": func(u string) (any, error) {
		parsed, err := url.Parse(u)
		if err != nil {
			return nil, err
		}
		return parsed.Hostname(), nil
	},
}

// plainValue is a JSON value with whole numbers as int.
func plainValue(raw json.RawMessage) (any, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	return plain(v), nil
}

func plain(v any) any {
	switch v := v.(type) {
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return int(i)
		}
		f, _ := v.Float64()
		return f
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
		return v
	case map[string]any:
		for k := range v {
			v[k] = plain(v[k])
		}
		return v
	default:
		return v
	}
}
