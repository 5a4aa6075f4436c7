package main

import (
	"encoding/json"
	"errors"
	"fmt"

	clarketm "github.com/clarketm/json"
	"github.com/coreos/go-semver/semver"
	"github.com/coreos/ign-converter/translate/v32tov22"
	"github.com/coreos/ign-converter/translate/v32tov31"
	"github.com/coreos/ign-converter/translate/v33tov32"
	"github.com/coreos/ign-converter/translate/v34tov33"
	"github.com/coreos/ign-converter/translate/v35tov34"
	errors2 "github.com/coreos/ignition/config/shared/errors"
	ign22 "github.com/coreos/ignition/config/v2_2"
	types22 "github.com/coreos/ignition/config/v2_2/types"
	report2 "github.com/coreos/ignition/config/validate/report"
	errors3 "github.com/coreos/ignition/v2/config/shared/errors"
	types31 "github.com/coreos/ignition/v2/config/v3_1/types"
	types32 "github.com/coreos/ignition/v2/config/v3_2/types"
	types33 "github.com/coreos/ignition/v2/config/v3_3/types"
	types34 "github.com/coreos/ignition/v2/config/v3_4/types"
	ign35 "github.com/coreos/ignition/v2/config/v3_5"
	types35 "github.com/coreos/ignition/v2/config/v3_5/types"
	report3 "github.com/coreos/vcontext/report"
)

// supported is the list that error messages about versions end with.
const supported = "2.2,3.0,3.1,3.2,3.3,3.4,3.5"

// entry is one line of a validation report. Spec 2 reports have no paths.
type entry struct {
	Kind    string `json:"kind"`
	Path    string `json:"path"`
	Message string `json:"message"`
}

// parsed is a config of either generation, never of both.
type parsed struct {
	v3     *types35.Config
	v2     *types22.Config
	report []entry
}

// entries3 flattens a report of the spec 3 parser.
func entries3(r report3.Report) []entry {
	out := make([]entry, 0, len(r.Entries))
	for _, e := range r.Entries {
		out = append(out, entry{Kind: e.Kind.String(), Path: e.Context.String(), Message: e.Message})
	}
	return out
}

// entries2 flattens a report of the spec 2 parser.
func entries2(r report2.Report) []entry {
	out := make([]entry, 0, len(r.Entries))
	for _, e := range r.Entries {
		out = append(out, entry{Kind: e.Kind.String(), Message: e.Message})
	}
	return out
}

// parse reads a config of any supported spec: 3.x becomes 3.5, 2.x becomes 2.2.
func parse(raw []byte) (parsed, error) {
	cfg3, rpt3, err := ign35.ParseCompatibleVersion(raw)
	p := parsed{report: entries3(rpt3)}
	switch {
	case err == nil && !rpt3.IsFatal():
		p.v3 = &cfg3
		return p, nil
	case err == nil:
		return p, fmt.Errorf("fatal report without an error\nReport: %v", rpt3)
	case errors.Is(err, errors3.ErrInvalidVersion):
		return p, fmt.Errorf("parsing Ignition config failed: invalid version. Supported spec versions: %s", supported)
	case !errors.Is(err, errors3.ErrUnknownVersion):
		return p, fmt.Errorf("parsing Ignition config spec v3 failed with error: %v\nReport: %v", err, rpt3)
	}
	cfg2, rpt2, err := ign22.Parse(raw)
	p.report = entries2(rpt2)
	switch {
	case err == nil && !rpt2.IsFatal():
		p.v2 = &cfg2
		return p, nil
	case errors.Is(err, errors2.ErrUnknownVersion):
		return p, fmt.Errorf("parsing Ignition config failed: unknown version. Supported spec versions: %s", supported)
	}
	return p, fmt.Errorf("parsing Ignition spec v2 failed with error: %v\nReport: %v", err, rpt2)
}

// encode returns the JSON that ends up in a MachineConfig: clarketm's encoder
// leaves out structs that are empty.
func encode(config any) (json.RawMessage, error) {
	out, err := clarketm.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("failed to marshal converted config: %w", err)
	}
	return out, nil
}

// configResponse wraps an encoded config.
func configResponse(config any) (response, error) {
	out, err := encode(config)
	if err != nil {
		return nil, err
	}
	return response{"config": out}, nil
}

// opParse parses a config and returns the parser's report.
func opParse(req request) (response, error) {
	p, err := parse([]byte(req.Raw))
	if err != nil {
		return response{"report": p.report}, err
	}
	var a response
	if p.v2 != nil {
		if a, err = configResponse(*p.v2); err == nil {
			a["v2"] = true
			a["spec"] = 2
		}
	} else if a, err = configResponse(*p.v3); err == nil {
		a["spec"] = 3
	}
	if err != nil {
		return nil, err
	}
	a["report"] = p.report
	return a, nil
}

// opConvert returns a config in the spec version that a client requested.
func opConvert(req request) (response, error) {
	target, err := semver.NewVersion(req.Target)
	if err != nil {
		return nil, err
	}
	p, err := parse([]byte(req.Raw))
	if err != nil {
		return nil, err
	}
	var current any
	if p.v2 != nil {
		current = *p.v2
	} else {
		current = *p.v3
	}
	raw, err := encode(current)
	if err != nil {
		return nil, err
	}
	// Parsing again, now as 3.5 only, refuses spec 2.
	strict, rpt, err := ign35.Parse(raw)
	if err != nil || rpt.IsFatal() {
		return nil, fmt.Errorf("parsing Ignition config failed with error: %w\nReport: %v", err, rpt)
	}
	result, err := down(strict, *target)
	if err != nil {
		return nil, err
	}
	return configResponse(result)
}

// down walks from 3.5 to target, one spec version at a time.
func down(from types35.Config, target semver.Version) (any, error) {
	if target.Equal(types35.MaxVersion) {
		return from, nil
	}
	below := []semver.Version{
		types34.MaxVersion, types33.MaxVersion, types32.MaxVersion, types31.MaxVersion, types22.MaxVersion,
	}
	known := false
	for _, v := range below {
		// Paths are looked up by the whole version, metadata included.
		known = known || v == target
	}
	if !known {
		return nil, fmt.Errorf("conversion for source version %v to target version %v is not supported the requested conversion is not supported",
			types35.MaxVersion, target)
	}
	c34, err := v35tov34.Translate(from)
	if err != nil || target == types34.MaxVersion {
		return c34, err
	}
	c33, err := v34tov33.Translate(c34)
	if err != nil || target == types33.MaxVersion {
		return c33, err
	}
	c32, err := v33tov32.Translate(c33)
	if err != nil || target == types32.MaxVersion {
		return c32, err
	}
	if target == types31.MaxVersion {
		return v32tov31.Translate(c32)
	}
	return v32tov22.Translate(c32)
}

// opMerge folds spec 3 configs from left to right.
func opMerge(req request) (response, error) {
	var merged types35.Config
	for i, raw := range req.Raws {
		cfg, rpt, err := ign35.ParseCompatibleVersion([]byte(raw))
		if err != nil || rpt.IsFatal() {
			return nil, fmt.Errorf("config %d: %v\nReport: %v", i, err, rpt)
		}
		if i == 0 {
			merged = cfg
		} else {
			merged = ign35.Merge(merged, cfg)
		}
	}
	return configResponse(merged)
}
