package logs

import (
	"errors"
	"strconv"
	"strings"
)

// spacedParser reads formats with fields at fixed positions, separated by spaces.
type spacedParser struct {
	names []string // of the fields; the line may have more, or up to the optional ones fewer
	least int      // minimum number of fields
	read  func(t *tokens, e *Entry) error
	error error
}

// tokens are the fields of a line, with their quotes or brackets.
type tokens [40]string

func (p *spacedParser) parse(line string, e *Entry) error {
	var t tokens
	if p.split(line, &t) < p.least {
		return p.error
	}
	return p.read(&t, e)
}

func (p *spacedParser) split(line string, t *tokens) (n int) {
	for one, more := token(line); one != "" && n < len(t); one, more = token(more) {
		t[n] = one
		n++
	}
	return n
}

func (p *spacedParser) mapping() []column { return nil }

func (p *spacedParser) fields(line string, add func(name, value string)) {
	var t tokens
	for i := range p.split(line, &t) {
		name := "extra" + strconv.Itoa(i-len(p.names)+1)
		if i < len(p.names) {
			name = p.names[i]
		}
		add(name, text(t[i]))
	}
}

var errALB = errors.New(`not a line such as http 2026-01-02T15:04:05.186641Z app/my-lb/50dc 192.0.2.1:2817 10.0.0.1:80 0.000 0.001 0.000 200 200 34 366 "GET http://example.com:80/ HTTP/1.1" "curl/8" - -`)

// albParser reads the access log of AWS application load balancers.
var albParser = &spacedParser{
	names: strings.Fields("type time elb client_port target_port request_processing_time target_processing_time response_processing_time elb_status_code " +
		"target_status_code received_bytes sent_bytes request user_agent ssl_cipher ssl_protocol target_group_arn trace_id domain_name chosen_cert_arn " +
		"matched_rule_priority request_creation_time actions_executed redirect_url error_reason target_port_list target_status_code_list classification " +
		"classification_reason conn_trace_id"),
	least: 14,
	read:  readALB,
	error: errALB,
}

func readALB(t *tokens, e *Entry) error {
	switch t[0] {
	case "http", "https", "h2", "grpcs", "ws", "wss":
	default:
		return errALB
	}
	if t[12][0] != '"' {
		return errALB
	}
	if err := attrTime.set(e, t[1]); err != nil {
		return err
	}
	if t[21] != "" && t[21] != "-" && attrStart.set(e, t[21]) != nil {
		return errALB
	}
	for _, v := range t[5:8] { // -1 if the request was not dispatched
		if d, err := parseDuration(v, 1e9); err == nil {
			e.Record.Duration += d
		}
	}
	client := t[3]
	if i := strings.LastIndexByte(client, ':'); i > 0 {
		client = client[:i]
	}
	e.setClient(client)
	_ = attrStatus.set(e, t[8])
	_ = attrBytesIn.set(e, t[10])
	_ = attrBytesOut.set(e, t[11])
	_ = e.setRequest(text(t[12])) // "- http://host:80- -" if the client sent no request
	if e.Record.Method == "-" {
		e.Record.Method = ""
	}
	e.Record.UserAgent = text(t[13])
	return nil
}

// envoyParser reads the default text format of Envoy, and istioParser that of Istio, which has three more fields after the
// response flags.
var (
	envoyParser = newEnvoy("response_flags bytes_received bytes_sent duration upstream_service_time http_x_forwarded_for user_agent request_id authority upstream_host", 2)
	istioParser = newEnvoy("response_flags response_code_details connection_termination_details upstream_transport_failure_reason bytes_received bytes_sent duration "+
		"upstream_service_time http_x_forwarded_for user_agent request_id authority upstream_host upstream_cluster upstream_local_address "+
		"downstream_local_address downstream_remote_address requested_server_name route_name", 5)
)

var errEnvoy = errors.New(`not a line such as [2026-01-02T15:04:05.310Z] "GET / HTTP/2" 200 - 0 512 26 25 "192.0.2.1" "curl/8" "cc21d9b0" "example.com" "10.0.2.1:80"`)

func newEnvoy(names string, bytes int) *spacedParser {
	bytes += 2 // position of the received bytes: after time, request, status and flags
	return &spacedParser{
		names: strings.Fields("start_time request response_code " + names),
		least: bytes + 9,
		error: errEnvoy,
		read: func(t *tokens, e *Entry) error {
			if t[0][0] != '[' || t[1][0] != '"' || !isNumber(t[bytes]) || !isNumber(t[2]) || t[bytes+4][0] != '"' {
				return errEnvoy
			}
			if err := attrStart.set(e, t[0]); err != nil {
				return err
			}
			_ = attrStatus.set(e, t[2])
			_ = attrBytesIn.set(e, t[bytes])
			_ = attrBytesOut.set(e, t[bytes+1])
			_ = attrDurationMillis.set(e, t[bytes+2])
			e.setClient(text(t[bytes+4])) // Envoy appends its peer to X-Forwarded-For; the format has no other address
			if bytes > 4 && t[bytes+12] != "" {
				e.setClient(t[bytes+12])
			}
			e.Record.UserAgent, e.Record.Host = text(t[bytes+5]), text(t[bytes+7])
			return e.setRequest(text(t[1]))
		},
	}
}

func isNumber(t string) bool { return len(t) < 19 && digits(t) >= 0 }
