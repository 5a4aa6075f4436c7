package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/containers/image/v5/docker/reference"
	"github.com/containers/image/v5/pkg/sysregistriesv2"
	"github.com/containers/image/v5/signature"
	"github.com/containers/image/v5/types"
	"github.com/ghodss/yaml"
)

func init() {
	operations["policies"] = opPolicies
}

// imagePolicy is the part of a ClusterImagePolicy or ImagePolicy that files depend on.
type imagePolicy struct {
	Namespace string   `json:"namespace"`
	Scopes    []string `json:"scopes"`
	Policy    struct {
		RootOfTrust struct {
			PolicyType string `json:"policyType"`
			PublicKey  *struct {
				KeyData      []byte `json:"keyData"`
				RekorKeyData []byte `json:"rekorKeyData"`
			} `json:"publicKey"`
			Fulcio *struct {
				FulcioCAData  []byte `json:"fulcioCAData"`
				RekorKeyData  []byte `json:"rekorKeyData"`
				FulcioSubject struct {
					OIDCIssuer  string `json:"oidcIssuer"`
					SignedEmail string `json:"signedEmail"`
				} `json:"fulcioSubject"`
			} `json:"fulcioCAWithRekor"`
			PKI *struct {
				Roots         []byte `json:"caRootsData"`
				Intermediates []byte `json:"caIntermediatesData"`
				Subject       struct {
					Email    string `json:"email"`
					Hostname string `json:"hostname"`
				} `json:"pkiCertificateSubject"`
			} `json:"pki"`
		} `json:"rootOfTrust"`
		SignedIdentity *struct {
			MatchPolicy     string `json:"matchPolicy"`
			ExactRepository struct {
				Repository string `json:"repository"`
			} `json:"exactRepository"`
			RemapIdentity struct {
				Prefix       string `json:"prefix"`
				SignedPrefix string `json:"signedPrefix"`
			} `json:"remapIdentity"`
		} `json:"signedIdentity"`
	} `json:"policy"`
}

// opPolicies makes the files of image policies with the libraries' own types.
//
//	policies  value: base (policy.json), allowed, blocked, cluster, namespaced, registries
//	          -> policy, sigstore, namespaces: the text of each file
func opPolicies(req request) (response, error) {
	var in struct {
		Base       string        `json:"base"`
		Allowed    []string      `json:"allowed"`
		Blocked    []string      `json:"blocked"`
		Cluster    []imagePolicy `json:"cluster"`
		Namespaced []imagePolicy `json:"namespaced"`
		Registries *string       `json:"registries"`
	}
	if err := json.Unmarshal(req.Value, &in); err != nil {
		return nil, err
	}
	cluster := signature.PolicyTransportScopes{}
	namespaces := map[string]signature.PolicyTransportScopes{}
	var scopes []string
	for _, policy := range in.Cluster {
		required, err := policy.requirement()
		if err != nil {
			return nil, err
		}
		scopes = append(scopes, policy.Scopes...)
		for _, scope := range policy.Scopes {
			cluster[scope] = append(cluster[scope], required)
		}
	}
	for _, policy := range in.Namespaced {
		required, err := policy.requirement()
		if err != nil {
			return nil, err
		}
		scopes = append(scopes, policy.Scopes...)
		of := namespaces[policy.Namespace]
		if of == nil {
			of = signature.PolicyTransportScopes{}
			namespaces[policy.Namespace] = of
		}
		for _, scope := range policy.Scopes {
			of[scope] = append(of[scope], required)
		}
	}
	text, err := clusterPolicy(in.Base, in.Allowed, in.Blocked, cluster)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for namespace, own := range namespaces {
		if files[namespace], err = namespacePolicy(text, own); err != nil {
			return nil, err
		}
	}
	sigstore, err := sigstoreRegistries(scopes, in.Registries)
	if err != nil {
		return nil, err
	}
	return response{"policy": text, "namespaces": files, "sigstore": sigstore}, nil
}

// requirement builds the library's requirement with the library's checks.
func (p *imagePolicy) requirement() (signature.PolicyRequirement, error) {
	var options []signature.PRSigstoreSignedOption
	root := p.Policy.RootOfTrust
	switch root.PolicyType {
	case "PublicKey":
		options = append(options, signature.PRSigstoreSignedWithKeyData(root.PublicKey.KeyData))
		if len(root.PublicKey.RekorKeyData) > 0 {
			options = append(options, signature.PRSigstoreSignedWithRekorPublicKeyData(root.PublicKey.RekorKeyData))
		}
	case "FulcioCAWithRekor":
		fulcio, err := signature.NewPRSigstoreSignedFulcio(
			signature.PRSigstoreSignedFulcioWithCAData(root.Fulcio.FulcioCAData),
			signature.PRSigstoreSignedFulcioWithOIDCIssuer(root.Fulcio.FulcioSubject.OIDCIssuer),
			signature.PRSigstoreSignedFulcioWithSubjectEmail(root.Fulcio.FulcioSubject.SignedEmail))
		if err != nil {
			return nil, err
		}
		options = append(options, signature.PRSigstoreSignedWithFulcio(fulcio),
			signature.PRSigstoreSignedWithRekorPublicKeyData(root.Fulcio.RekorKeyData))
	case "PKI":
		of := []signature.PRSigstoreSignedPKIOption{signature.PRSigstoreSignedPKIWithCARootsData(root.PKI.Roots)}
		if len(root.PKI.Intermediates) > 0 {
			of = append(of, signature.PRSigstoreSignedPKIWithCAIntermediatesData(root.PKI.Intermediates))
		}
		if root.PKI.Subject.Email != "" {
			of = append(of, signature.PRSigstoreSignedPKIWithSubjectEmail(root.PKI.Subject.Email))
		}
		if root.PKI.Subject.Hostname != "" {
			of = append(of, signature.PRSigstoreSignedPKIWithSubjectHostname(root.PKI.Subject.Hostname))
		}
		pki, err := signature.NewPRSigstoreSignedPKI(of...)
		if err != nil {
			return nil, err
		}
		options = append(options, signature.PRSigstoreSignedWithPKI(pki))
	}
	identity, err := p.identity()
	if err != nil {
		return nil, err
	}
	return signature.NewPRSigstoreSigned(append(options, signature.PRSigstoreSignedWithSignedIdentity(identity))...)
}

func (p *imagePolicy) identity() (signature.PolicyReferenceMatch, error) {
	wanted := p.Policy.SignedIdentity
	if wanted == nil {
		return signature.NewPRMMatchRepoDigestOrExact(), nil
	}
	switch wanted.MatchPolicy {
	case "MatchRepoDigestOrExact":
		return signature.NewPRMMatchRepoDigestOrExact(), nil
	case "MatchRepository":
		return signature.NewPRMMatchRepository(), nil
	case "ExactRepository":
		return signature.NewPRMExactRepository(wanted.ExactRepository.Repository)
	case "RemapIdentity":
		return signature.NewPRMRemapIdentity(wanted.RemapIdentity.Prefix, wanted.RemapIdentity.SignedPrefix)
	}
	return nil, fmt.Errorf("unknown match policy %q", wanted.MatchPolicy)
}

// clusterPolicy is the text of policy.json; the base's own text if nothing concerns the cluster.
func clusterPolicy(base string, allowed, blocked []string, policies signature.PolicyTransportScopes) (string, error) {
	if len(allowed)+len(blocked)+len(policies) == 0 {
		return base, nil
	}
	var policy signature.Policy
	if err := json.Unmarshal([]byte(base), &policy); err != nil {
		return "", err
	}
	scopes := signature.PolicyTransportScopes{}
	if len(allowed) > 0 {
		policy.Default = signature.PolicyRequirements{signature.NewPRReject()}
	}
	for _, scope := range allowed {
		if policies[scope] == nil {
			scopes[scope] = signature.PolicyRequirements{signature.NewPRInsecureAcceptAnything()}
		}
	}
	if len(blocked) > 0 {
		policy.Default = signature.PolicyRequirements{signature.NewPRInsecureAcceptAnything()}
	}
	for _, scope := range blocked {
		scopes[scope] = signature.PolicyRequirements{signature.NewPRReject()}
	}
	for scope, required := range policies {
		scopes[scope] = append(scopes[scope], required...)
	}
	if len(scopes) > 0 {
		policy.Transports["docker"] = scopes
		policy.Transports["atomic"] = forAtomic(scopes)
	}
	text, err := json.MarshalIndent(&policy, "", "  ")
	return string(text), err
}

func namespacePolicy(cluster string, own signature.PolicyTransportScopes) (string, error) {
	var policy signature.Policy
	if err := json.Unmarshal([]byte(cluster), &policy); err != nil {
		return "", err
	}
	if policy.Transports == nil {
		policy.Transports = map[string]signature.PolicyTransportScopes{}
	}
	for transport, scopes := range map[string]signature.PolicyTransportScopes{"docker": own, "atomic": forAtomic(own)} {
		if policy.Transports[transport] == nil {
			policy.Transports[transport] = signature.PolicyTransportScopes{}
		}
		for scope, required := range scopes {
			policy.Transports[transport][scope] = append(policy.Transports[transport][scope], required...)
		}
	}
	text, err := json.MarshalIndent(&policy, "", "  ")
	return string(text), err
}

// forAtomic leaves out the scopes that the transport "atomic" does not know.
func forAtomic(scopes signature.PolicyTransportScopes) signature.PolicyTransportScopes {
	shallow := signature.PolicyTransportScopes{}
	for scope, required := range scopes {
		if strings.Count(scope, "/") < 3 {
			shallow[scope] = required
		}
	}
	return shallow
}

// sigstoreRegistries is the text of sigstore-registries.yaml: the scopes, and where the library
// would pull their images from.
func sigstoreRegistries(scopes []string, registries *string) (string, error) {
	type attachments struct {
		Use bool `json:"use-sigstore-attachments,omitempty"`
	}
	places := map[string]attachments{}
	for _, scope := range scopes {
		places[scope] = attachments{Use: true}
	}
	if len(places) == 0 {
		return "", nil
	}
	if registries != nil {
		path, done, err := file("registries.conf", *registries)
		if err != nil {
			return "", err
		}
		defer done()
		var conf sysregistriesv2.V2RegistriesConf
		if _, err := toml.Decode(*registries, &conf); err != nil {
			return "", err
		}
		context := &types.SystemContext{SystemRegistriesConfPath: path, SystemRegistriesConfDirPath: os.DevNull}
		for _, scope := range scopes {
			looked := []string{scope}
			for _, registry := range conf.Registries {
				inner := registry.Location
				if registry.Prefix != "" {
					inner = registry.Prefix
				}
				if isInside(inner, scope) {
					looked = append(looked, inner)
				}
			}
			for _, name := range looked {
				found, err := pullLocations(context, name)
				if err != nil {
					return "", err
				}
				for _, place := range found {
					places[place] = attachments{Use: true}
				}
			}
		}
	}
	text, err := yaml.Marshal(map[string]any{"docker": places})
	return string(text), err
}

// isInside reports whether a scope is inside another, without being it.
func isInside(inner, outer string) bool {
	if strings.HasPrefix(inner, outer+"/") {
		return true
	}
	host, _, _ := strings.Cut(inner, "/")
	if strings.Contains(host, ":") {
		host, _, _ = strings.Cut(host, ":")
	}
	return strings.HasPrefix(outer, "*.") && inner != outer && strings.HasSuffix(host, outer[1:])
}

// pullLocations lists the repositories that the library tries for the images of a scope.
func pullLocations(context *types.SystemContext, scope string) ([]string, error) {
	registry, err := sysregistriesv2.FindRegistry(context, scope)
	if err != nil || registry == nil {
		return nil, err
	}
	name := scope
	if strings.HasPrefix(name, "*.") {
		name = "matched" + name[1:]
	}
	isHost := !strings.Contains(name, "/")
	if isHost {
		name += "/a"
	}
	parsed, err := reference.Parse(name)
	if err != nil {
		return nil, err
	}
	named, ok := parsed.(reference.Named)
	if !ok {
		return nil, fmt.Errorf("%s is not a named reference", name)
	}
	repository := reference.TrimNamed(named)
	byDigest, err := reference.WithDigest(repository, "sha256:"+digestOfNothing)
	if err != nil {
		return nil, err
	}
	byTag, err := reference.WithTag(repository, "tag")
	if err != nil {
		return nil, err
	}
	var places []string
	for _, pulled := range []reference.Named{byDigest, byTag} {
		sources, err := registry.PullSourcesFromReference(pulled)
		if err != nil {
			return nil, err
		}
		for _, source := range sources {
			if source.Endpoint.Location == "" {
				continue
			}
			place := source.Reference.Name()
			if isHost {
				place = strings.TrimSuffix(place, "/a")
			}
			places = append(places, place)
		}
	}
	return places, nil
}

// digestOfNothing is some digest: which one does not matter.
const digestOfNothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
