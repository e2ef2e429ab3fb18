package snavio

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	certificateFile = "cert.pem"
	privateKeyFile  = "key.pem"
	caFile          = "ca.pem"
	currentLink     = "current"
	generation      = ".generation-"
)

// Signer backdates certificates by this much, for machines whose clock is behind.
const backdate = 300 * time.Second

// bundle is what a certificate folder holds.
type bundle struct {
	certificate tls.Certificate
	leaf        *x509.Certificate
	roots       *x509.CertPool
	spiffeID    string
}

func readFolder(folder string) (*bundle, error) {
	// Through `current` when it is there: a renewal between two reads must not mix two generations.
	place := folder
	if target, err := os.Readlink(filepath.Join(folder, currentLink)); err == nil {
		place = filepath.Join(folder, target)
	}
	read := func(name string) []byte {
		content, err := os.ReadFile(filepath.Join(place, name))
		if err != nil {
			return nil
		}
		return content
	}
	certificate, err := tls.X509KeyPair(read(certificateFile), read(privateKeyFile))
	if err != nil {
		return nil, local("bad-certificate", "%s holds no certificate with its key: %v", folder, err)
	}
	leaf, err := x509.ParseCertificate(certificate.Certificate[0])
	if err != nil {
		return nil, local("bad-certificate", "%s holds a certificate that cannot be read: %v", folder, err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(read(caFile)) {
		return nil, local("bad-certificate", "%s holds no CA.", folder)
	}
	if len(leaf.URIs) != 1 || leaf.URIs[0].Scheme != "spiffe" {
		return nil, local("no-identity", "The certificate in %s has no single SPIFFE id.", folder)
	}
	certificate.Leaf = leaf
	return &bundle{certificate, leaf, roots, leaf.URIs[0].String()}, nil
}

// writeFolder replaces all three files at once: each is a link through `current`, which is replaced as one. File by
// file, a crash in between would leave a certificate with another key.
func writeFolder(folder string, certificate, key, ca []byte) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	// One writer at a time: another's cleaning would take away the generation that this one is about to link.
	alone, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer alone.Close()
	if err := lock(alone); err != nil {
		return err
	}
	var random [8]byte
	_, _ = rand.Read(random[:])
	name := generation + hex.EncodeToString(random[:])
	place := filepath.Join(folder, name)
	if err := os.Mkdir(place, 0o700); err != nil {
		return err
	}
	for file, content := range map[string][]byte{certificateFile: certificate, privateKeyFile: key, caFile: ca} {
		mode := os.FileMode(0o644)
		if file == privateKeyFile {
			mode = 0o600
		}
		if err := writeDurably(filepath.Join(place, file), content, mode); err != nil {
			return err
		}
	}
	before, _ := os.Readlink(filepath.Join(folder, currentLink))
	if err := link(filepath.Join(folder, currentLink), name); err != nil {
		return err
	}
	for _, file := range []string{certificateFile, privateKeyFile, caFile} {
		wanted := currentLink + "/" + file
		if target, err := os.Readlink(filepath.Join(folder, file)); err != nil || target != wanted {
			if err := link(filepath.Join(folder, file), wanted); err != nil {
				return err
			}
		}
	}
	old, _ := filepath.Glob(filepath.Join(folder, generation+"*"))
	for _, path := range old {
		// The one before stays, for a reader that has just opened its first file.
		if base := filepath.Base(path); base != name && base != before {
			_ = os.RemoveAll(path)
		}
	}
	return nil
}

func lock(folder *os.File) error {
	for end := time.Now().Add(callTimeout); ; time.Sleep(5 * time.Millisecond) {
		err := syscall.Flock(int(folder.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			return local("folder-locked", "Another process does not finish writing %s.", folder.Name())
		}
	}
}

func writeDurably(path string, content []byte, mode os.FileMode) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	if _, err = file.Write(content); err == nil {
		err = file.Sync()
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	return err
}

func link(path, target string) error {
	trial := path + ".new"
	_ = os.Remove(trial)
	if err := os.Symlink(target, trial); err != nil {
		return err
	}
	return os.Rename(trial, path)
}

// parseSPIFFE splits spiffe://<trust domain>/tenant/<tenant>/<kind>/<name>.
func parseSPIFFE(id string) (trustDomain, tenant, kind, name string, err error) {
	parts := strings.Split(strings.TrimPrefix(id, "spiffe://"), "/")
	if !strings.HasPrefix(id, "spiffe://") || len(parts) != 5 || parts[1] != "tenant" {
		return "", "", "", "", local("no-identity", "%s is not the identity of a tenant's service or principal.", id)
	}
	return parts[0], parts[2], parts[3], parts[4], nil
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func serviceID(trustDomain, source string) string {
	tenant, name, _ := strings.Cut(source, "/")
	return "spiffe://" + trustDomain + "/tenant/" + tenant + "/service/" + name
}
