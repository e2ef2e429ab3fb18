package snavio

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	pb "snavio.local/go/snaviov1"
)

// Enrolment is what a newcomer has: the parts of an invitation, and where the certificate shall go.
type Enrolment struct {
	// Address of the enrolment server, host:port.
	Address string
	// Fingerprint of the CA, SHA-256 in hex. Empty takes the one in the token; given, both must agree.
	Fingerprint string
	// Token that is good for one enrolment.
	Token string
	// Name of the principal; may be empty where the token fixes it.
	Name string
	// Folder for key, certificate and CA. One that holds a certificate already is refused.
	Folder string
}

// Enrol trades a token for a principal's certificate and writes it to the folder; it returns the SPIFFE id.
//
// The token is sent only to a server whose CA has the fingerprint; nothing is sent before that was seen.
func Enrol(ctx context.Context, e Enrolment) (string, error) {
	parts := strings.Split(strings.TrimSpace(e.Token), ".")
	if len(parts) != 3 || parts[0] != "snv1" {
		return "", local("bad-token", "This is not an enrolment token.")
	}
	wanted := strings.ToLower(strings.ReplaceAll(e.Fingerprint, ":", ""))
	if wanted != "" && wanted != parts[1] {
		return "", local("wrong-installation", "The token is of another installation than the fingerprint; nothing was sent.")
	}
	if _, err := os.Stat(filepath.Join(e.Folder, certificateFile)); err == nil {
		return "", local("folder-taken", "%s holds a certificate already; choose another folder.", e.Folder)
	}
	ca, err := pinnedCA(ctx, e.Address, parts[1])
	if err != nil {
		return "", err
	}
	if len(ca.URIs) != 1 {
		return "", local("bad-ca", "The CA does not name its installation.")
	}
	trustDomain := ca.URIs[0].Host
	key, csr, err := newKeyAndCSR()
	if err != nil {
		return "", err
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	transport := credentials.NewTLS(&tls.Config{
		RootCAs: roots, ServerName: "signer.mesh." + trustDomain, MinVersion: tls.VersionTLS12,
	})
	connection, err := grpc.NewClient("passthrough:///"+e.Address, dialOptions(transport)...)
	if err != nil {
		return "", err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var trailer metadata.MD
	answer, err := pb.NewEnrolmentClient(connection).Enroll(ctx,
		&pb.EnrollRequest{Token: strings.TrimSpace(e.Token), CsrPem: string(csr), Name: e.Name}, grpc.Trailer(&trailer))
	if err != nil {
		return "", errorOf(err, trailer)
	}
	// With the CA that the token names, whatever the answer calls it.
	caPEM := encodePEM("CERTIFICATE", ca.Raw)
	if err := keep(e.Folder, []byte(answer.GetCertificatePem()), key, caPEM, answer.GetSpiffeId()); err != nil {
		return "", err
	}
	return answer.GetSpiffeId(), nil
}

// pinnedCA is the certificate with that fingerprint among those that the server shows. This connection is not
// verified, and nothing is sent on it.
func pinnedCA(ctx context.Context, address, fingerprint string) (*x509.Certificate, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	dialer := tls.Dialer{NetDialer: &net.Dialer{}, Config: &tls.Config{
		InsecureSkipVerify: true, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12,
	}}
	plain, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, local("unreachable", "%s does not answer as Signer's enrolment would: %v", address, err)
	}
	defer plain.Close()
	for _, shown := range plain.(*tls.Conn).ConnectionState().PeerCertificates {
		digest := sha256.Sum256(shown.Raw)
		if hex.EncodeToString(digest[:]) == fingerprint {
			return shown, nil
		}
	}
	return nil, local("wrong-installation", "The token is of another installation than the one at %s; nothing was sent.", address)
}

// newKeyAndCSR makes a P-256 key and a request that asks for no name: the CA decides names.
func newKeyAndCSR() (keyPEM, csrPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, nil, err
	}
	return encodePEM("PRIVATE KEY", der), encodePEM("CERTIFICATE REQUEST", csr), nil
}

// keep writes a certificate that came back, once it is known to be for our key and for the identity that was wanted.
func keep(folder string, certificate, key, ca []byte, spiffeID string) error {
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return local("bad-certificate", "The certificate that came back is not for our key.")
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil || len(leaf.URIs) != 1 || leaf.URIs[0].String() != spiffeID {
		return local("bad-certificate", "The certificate that came back is not ours.")
	}
	return writeFolder(folder, certificate, key, ca)
}

const callTimeout = 10 * time.Second
