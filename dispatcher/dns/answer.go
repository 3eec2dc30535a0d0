package dns

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// read returns the records that a response has for a question. Aliases are followed within the response, for a server
// that is asked by stub resolvers follows them itself.
func read(reply *dnsmessage.Message, asked dnsmessage.Question, of Type) (Answer, error) {
	name := strings.TrimSuffix(asked.Name.String(), ".")
	switch reply.RCode {
	case dnsmessage.RCodeSuccess:
	case dnsmessage.RCodeNameError:
		return negative(reply), &NegativeError{Name: name, Type: of, Missing: true}
	default:
		return Answer{}, fmt.Errorf("it responded %s", strings.TrimPrefix(reply.RCode.String(), "RCode"))
	}
	if len(reply.Answers) > mostRecords {
		return Answer{}, fmt.Errorf("it returned %d records; the maximum is %d", len(reply.Answers), mostRecords)
	}
	owner, ttl, err := canonical(reply, asked.Name)
	if err != nil {
		return Answer{}, err
	}
	var answer Answer
	for i := range reply.Answers {
		one := &reply.Answers[i]
		record, ok := recordOf(one.Body)
		if !ok || one.Header.Type != asked.Type || key(one.Header.Name) != owner {
			continue
		}
		answer.Records = append(answer.Records, record)
		ttl = min(ttl, one.Header.TTL)
	}
	if len(answer.Records) == 0 {
		return negative(reply), &NegativeError{Name: name, Type: of}
	}
	answer.TTL = seconds(ttl)
	return answer, nil
}

// canonical follows the aliases of a name. It returns the name that they lead to, and the shortest TTL on the way.
func canonical(reply *dnsmessage.Message, name dnsmessage.Name) (owner string, ttl uint32, err error) {
	aliases := map[string]*dnsmessage.Resource{}
	for i := range reply.Answers {
		if one := &reply.Answers[i]; one.Header.Type == dnsmessage.TypeCNAME {
			aliases[key(one.Header.Name)] = one
		}
	}
	owner, ttl = key(name), mostTTL
	for range mostAliases {
		alias, ok := aliases[owner]
		if !ok {
			return owner, ttl, nil
		}
		body, ok := alias.Body.(*dnsmessage.CNAMEResource)
		if !ok {
			break
		}
		owner, ttl = key(body.CNAME), min(ttl, alias.Header.TTL)
	}
	return "", 0, errors.New("the aliases of the name lead nowhere")
}

// recordOf returns the record that the body of a resource stands for. A service whose target is the root is one that is
// not there (RFC 2782).
func recordOf(body dnsmessage.ResourceBody) (Record, bool) {
	switch r := body.(type) {
	case *dnsmessage.AResource:
		return Record{Host: netip.AddrFrom4(r.A).String()}, true
	case *dnsmessage.AAAAResource:
		return Record{Host: netip.AddrFrom16(r.AAAA).String()}, true
	case *dnsmessage.SRVResource:
		target := key(r.Target)
		return Record{Host: target, Port: r.Port, Priority: r.Priority, Weight: r.Weight}, target != "" && r.Port != 0
	}
	return Record{}, false
}

// negative returns the answer that there are none, for the time that the zone says (RFC 2308).
func negative(reply *dnsmessage.Message) (answer Answer) {
	for i := range reply.Authorities {
		if soa, ok := reply.Authorities[i].Body.(*dnsmessage.SOAResource); ok {
			answer.TTL = seconds(min(reply.Authorities[i].Header.TTL, soa.MinTTL))
		}
	}
	return answer
}

// mostTTL is the longest TTL, in seconds; longer ones count as 0 (RFC 2181).
const mostTTL = 1<<31 - 1

func seconds(ttl uint32) time.Duration {
	if ttl > mostTTL {
		return 0
	}
	return time.Duration(ttl) * time.Second
}

// key returns a name as names are compared.
func key(name dnsmessage.Name) string { return strings.ToLower(strings.TrimSuffix(name.String(), ".")) }
