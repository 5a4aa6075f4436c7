package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"time"
)

func init() {
	operations["certificate"] = opCertificate
}

// opCertificate makes a certificate for a name and says how Go writes that name.
//
//	certificate  value: [{Type: [2,5,4,3], Value: text}, ...] -> pem, subject, notBefore, notAfter
func opCertificate(req request) (response, error) {
	var attributes []struct {
		Type  asn1.ObjectIdentifier
		Value string
	}
	if err := json.Unmarshal(req.Value, &attributes); err != nil {
		return nil, err
	}
	var name pkix.Name
	for _, it := range attributes {
		name.ExtraNames = append(name.ExtraNames, pkix.AttributeTypeAndValue{Type: it.Type, Value: it.Value})
	}
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      name,
		NotBefore:    start,
		NotAfter:     start.AddDate(40, 0, 0),
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		return nil, err
	}
	read, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return response{
		"pem":       string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		"subject":   read.Subject.String(),
		"notBefore": read.NotBefore.Format(time.RFC3339),
		"notAfter":  read.NotAfter.Format(time.RFC3339),
	}, nil
}
