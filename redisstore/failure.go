package redisstore

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"

	"github.com/sluiceproject/sluice"
)

// ErrConfig is wrapped by errors that will not go away by themselves: a password that the server does not take, a right
// that the user lacks, a certificate that is not trusted. [Open] returns them. A store that meets one later says so in an
// error that wraps [sluice.ErrUnavailable] as well, so that the fail modes answer meanwhile.
var ErrConfig = errors.New("configuration error")

// retryClass is what an error means for the command that met it.
type retryClass uint8

const (
	mayHaveRun    retryClass = iota // nobody knows, so it is never sent again
	notRun                          // it was not; sent again it may succeed
	wrongServer                     // it was not, by a server that is not, or not yet, the one to ask
	refused                         // it was not, and would not be a moment later
	misconfigured                   // it was not, and will not be until somebody changes something
	unknownScript                   // it was not: the server lacks the script
	closed                          // the client is closed
)

// replies are what servers say, by how it begins.
var replies = []struct {
	begins  string
	verdict retryClass
	advice  string
}{
	{"NOSCRIPT", unknownScript, ""},
	{"READONLY", wrongServer, "this server is a replica: the URL must name the primary, or the sentinels"},
	{"LOADING", wrongServer, "the server has just started and reads its data"},
	{"MASTERDOWN", wrongServer, "the server is a replica that has lost its primary"},
	{"NOREPLICAS", notRun, "fewer replicas than min-replicas-to-write are connected"},
	{"CLUSTERDOWN", notRun, "the Cluster does not serve this slot now: see CLUSTER INFO"},
	{"TRYAGAIN", notRun, "the slot is being moved"},
	{"MOVED", notRun, "the slot has been moved"},
	{"ASK", notRun, "the slot is being moved"},
	{"OOM", refused, "the server has no memory left: raise maxmemory; keep maxmemory-policy at noeviction, or counts are lost"},
	{"MISCONF", refused, "the server cannot write to its disk and refuses changes: see its log"},
	{"BUSY", refused, "a script or function of somebody's runs on and on: SCRIPT KILL or FUNCTION KILL ends it"},
	{"UNKILLABLE", refused, "a script of somebody's runs on and on"},
	{"max number of clients", refused, "the server has all the clients it takes: raise maxclients"},
	{"NOAUTH", misconfigured, "the server wants a password: write it in Config.URL, or name Config.PasswordFile"},
	{"WRONGPASS", misconfigured, "the server does not take this user and password: see Config.URL and Config.PasswordFile"},
	{"NOPERM", misconfigured, "the user lacks a right: the package's documentation has the list"},
	{"DENIED", misconfigured, "the server is in protected mode: set a password there, or bind it to an address"},
	{"AUTH", misconfigured, "the server has no password set: leave it out of Config.URL"},
	{"Client sent AUTH", misconfigured, "the server has no password set: leave it out of Config.URL"},
	{"invalid password", misconfigured, "see Config.URL and Config.PasswordFile"},
	{"invalid DB index", misconfigured, "the URL names a database that the server does not have"},
	{"DB index", misconfigured, "the URL names a database that the server does not have"},
	{"unknown command", misconfigured, "the server lacks a command: it must be Redis 6.2 or newer, or Valkey, with scripts allowed"},
}

// inScript are the replies that older servers wrap in one about the script whose command met them. No such command
// changes anything, and the script has stopped at the first.
var inScript = []string{"READONLY", "OOM", "MISCONF", "NOREPLICAS", "NOPERM"}

// errNotYet is said of a connection that is not tried again so soon.
var errNotYet = errors.New("not connected, and not trying again yet")

// classify tells what an error means, and what to do about it.
func classify(err error) (retryClass, string) {
	var (
		said     ServerError
		dial     *net.OpError
		unsigned *tls.CertificateVerificationError
		unknown  x509.UnknownAuthorityError
		record   tls.RecordHeaderError
		alert    tls.AlertError
	)
	switch {
	case errors.As(err, &said):
		return classifyReply(string(said))
	case errors.Is(err, sluice.ErrClosed):
		return closed, ""
	case errors.Is(err, ErrConfig):
		return misconfigured, ""
	case errors.As(err, &unsigned), errors.As(err, &unknown):
		return misconfigured, "the server's certificate is not trusted: set Config.TLS.RootCAs to its authority's, and ServerName if it is for another name"
	case errors.As(err, &record):
		return misconfigured, "the server does not speak TLS on this port: use its TLS port, or redis:// without TLS"
	case errors.As(err, &alert), err != nil && strings.Contains(err.Error(), "remote error: tls:"):
		return misconfigured, "the server refuses the client's certificate, or wants one: see Config.TLS.Certificates"
	case errors.Is(err, errNotYet):
		return refused, ""
	case errors.As(err, &dial) && dial.Op == "dial":
		return notRun, ""
	}
	return mayHaveRun, ""
}

func classifyReply(said string) (retryClass, string) {
	said = strings.TrimPrefix(said, "ERR ") // which some clients leave out
	if begins, inside, found := strings.Cut(said, ": -"); found && strings.HasPrefix(begins, "Error running script") {
		for _, word := range inScript {
			if strings.HasPrefix(inside, word+" ") {
				said = inside
			}
		}
	}
	for _, r := range replies {
		if strings.HasPrefix(said, r.begins) {
			return r.verdict, r.advice
		}
	}
	return mayHaveRun, ""
}
