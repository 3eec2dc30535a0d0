package provider

import (
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/carillon-dev/carillon/dispatcher"
)

// reportProblems adds an error for each fault, at the attribute it points to.
func reportProblems(diags *diag.Diagnostics, problems []dispatcher.Problem) {
	for _, f := range problems {
		diags.AddAttributeError(attributePath(f.Path), "Invalid value ("+f.Code+")", located(f))
	}
}

// reportWarnings adds a warning for each fault, at the attribute it points to.
func reportWarnings(diags *diag.Diagnostics, problems []dispatcher.Problem) {
	for _, f := range problems {
		diags.AddAttributeWarning(attributePath(f.Path), "Probably not meant ("+f.Code+")", located(f))
	}
}

// located puts the attribute's path before the message: of a nested attribute, Terraform
// shows only where the outermost one stands. Of a calendar's rules the message begins with
// the pointer, which the path takes the place of.
func located(f dispatcher.Problem) string {
	at, message := attributePath(f.Path).String(), f.Message
	if rest, said := strings.CutPrefix(message, strings.TrimPrefix(f.Path, "/")); said && strings.Count(f.Path, "/") > 1 {
		message = strings.TrimLeft(rest, ": ")
	}
	if at == "" {
		return message
	}
	return at + ": " + message
}

// lists are the attributes that hold lists.
var lists = []string{"rules", "dates", "weekdays", "days_of_month", "bases", "delays"}

// attributePath turns a JSON pointer of the API into the path of the attribute that it
// comes from: "/triggers/nightly/expression" into triggers["nightly"].expression. The two
// differ only in that keys of maps and indexes of lists are marked in a path.
func attributePath(pointer string) path.Path {
	p := path.Empty()
	inMap, inList := false, false
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		index, notIndex := strconv.Atoi(token)
		switch {
		case token == "" && !inMap:
			return p
		case inList && notIndex == nil:
			p = p.AtListIndex(index)
		case inMap:
			p = p.AtMapKey(token)
		default:
			p = p.AtName(token)
		}
		inMap = !inMap && (token == "triggers" || token == "headers" || token == "node_labels" || token == "session_tags" || token == "secrets")
		inList = slices.Contains(lists, token)
		if token == "payload" {
			return p // an opaque text to Terraform: nothing within it has a path
		}
	}
	return p
}
