package main

import (
	"fmt"

	"github.com/coreos/go-semver/semver"
	"github.com/coreos/ign-converter/translate/v23tov30"
	types22 "github.com/coreos/ignition/config/v2_2/types"
	ign23 "github.com/coreos/ignition/config/v2_3"
	up31 "github.com/coreos/ignition/v2/config/v3_1/translate"
	up32 "github.com/coreos/ignition/v2/config/v3_2/translate"
	up33 "github.com/coreos/ignition/v2/config/v3_3/translate"
	up34 "github.com/coreos/ignition/v2/config/v3_4/translate"
	ign35 "github.com/coreos/ignition/v2/config/v3_5"
	up35 "github.com/coreos/ignition/v2/config/v3_5/translate"
	types35 "github.com/coreos/ignition/v2/config/v3_5/types"
)

// opUpgrade returns any supported config as 3.5.
func opUpgrade(req request) (response, error) {
	cfg, err := upgrade([]byte(req.Raw))
	if err != nil {
		return nil, err
	}
	return configResponse(cfg)
}

// upgrade parses a config and brings spec 2 up to 3.5.
func upgrade(raw []byte) (types35.Config, error) {
	p, err := parse(raw)
	if err != nil {
		return types35.Config{}, fmt.Errorf("failed to parse Ignition config: %w", err)
	}
	if p.v3 != nil {
		return *p.v3, nil
	}
	flat, err := collapse(*p.v2)
	if err != nil {
		return types35.Config{}, err
	}
	if v, err := semver.NewVersion(flat.Ignition.Version); err != nil || *v != types22.MaxVersion {
		return types35.Config{}, fmt.Errorf("a spec 2 config came out of its parser as %q", flat.Ignition.Version)
	}
	v30, err := v23tov30.Translate(ign23.Translate(flat), map[string]string{"root": "/"})
	if err != nil {
		return types35.Config{}, fmt.Errorf(
			"failed to convert Ignition config spec v2 to v3: unable to convert Ignition spec v2 config to v3: %w", err)
	}
	return up35.Translate(up34.Translate(up33.Translate(up32.Translate(up31.Translate(v30))))), nil
}

// collapse removes what spec 3 forbids and spec 2 allowed: several entries for
// one file, unit or user. The last entry wins, and lists come out reversed.
func collapse(cfg types22.Config) (types22.Config, error) {
	var files []types22.File
	paths := map[string]struct{}{}
	for i := range cfg.Storage.Files {
		f := cfg.Storage.Files[len(cfg.Storage.Files)-1-i]
		if _, seen := paths[f.Path]; !seen {
			paths[f.Path] = struct{}{}
			files = append(files, f)
		}
	}

	var units []types22.Unit
	at := map[string]int{}
	for i := range cfg.Systemd.Units {
		u := cfg.Systemd.Units[len(cfg.Systemd.Units)-1-i]
		if j, seen := at[u.Name]; seen {
			units[j].Dropins = addDropins(units[j].Dropins, u.Dropins)
			continue
		}
		at[u.Name] = len(units)
		u.Dropins = append([]types22.SystemdDropin(nil), u.Dropins...)
		units = append(units, u)
	}

	users, err := collapseUsers(cfg.Passwd.Users)
	if err != nil {
		return cfg, err
	}
	cfg.Storage.Files, cfg.Systemd.Units, cfg.Passwd.Users = files, units, users
	return cfg, nil
}

// addDropins appends those of older whose names are new.
func addDropins(newer, older []types22.SystemdDropin) []types22.SystemdDropin {
	names := map[string]struct{}{}
	for _, d := range newer {
		names[d.Name] = struct{}{}
	}
	for _, d := range older {
		if _, seen := names[d.Name]; !seen {
			names[d.Name] = struct{}{}
			newer = append(newer, d)
		}
	}
	return newer
}

// collapseUsers merges the keys of all entries, the newest first, into the last.
func collapseUsers(users []types22.PasswdUser) ([]types22.PasswdUser, error) {
	if len(users) == 0 {
		return users, nil
	}
	last := users[len(users)-1]
	keys := []types22.SSHAuthorizedKey{}
	seen := map[types22.SSHAuthorizedKey]struct{}{}
	for i := len(users) - 1; i >= 0; i-- {
		if users[i].Name != "core" {
			return nil, fmt.Errorf("unexpected user with name: %v. Only core user is supported", users[i].Name)
		}
		for _, k := range users[i].SSHAuthorizedKeys {
			if _, dup := seen[k]; !dup {
				seen[k] = struct{}{}
				keys = append(keys, k)
			}
		}
	}
	last.SSHAuthorizedKeys = keys
	return []types22.PasswdUser{last}, nil
}

// opRender merges the configs of one pool the way a rendered config is made.
// An empty text stands for a MachineConfig without an Ignition config.
func opRender(req request) (response, error) {
	out := types35.Config{Ignition: types35.Ignition{Version: types35.MaxVersion.String()}}
	for i, raw := range req.Raws {
		if raw == "" {
			continue
		}
		cfg, err := upgrade([]byte(raw))
		if err != nil {
			return nil, err
		}
		if i == 0 {
			out = cfg
			continue
		}
		// An explicit "" makes a plain override cancel an earlier gzip.
		for j := range cfg.Storage.Files {
			if c := &cfg.Storage.Files[j].Contents; c.Compression == nil {
				empty := ""
				c.Compression = &empty
			}
		}
		out = ign35.Merge(out, cfg)
		for j := range out.Storage.Files {
			if c := &out.Storage.Files[j].Contents; c.Compression != nil && *c.Compression == "" {
				c.Compression = nil
			}
		}
	}
	for j := range out.Storage.Files {
		if f := &out.Storage.Files[j]; f.Overwrite == nil {
			yes := true
			f.Overwrite = &yes
		}
	}
	return configResponse(out)
}
