package provider_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-dev/carillon/test/need"
)

// badDefinition is a definition that a plan must refuse: its attributes, and the code and path of
// each error.
type badDefinition struct {
	attributes string
	want       []string
}

// badJobs are jobs that a plan must refuse, by their mistake.
var badJobs = map[string]badDefinition{
	"cron empty":               {trigger(`expression = ""`), []string{`cron_empty trigger["t"].expression`}},
	"cron blank":               {trigger(`expression = "   "`), []string{`cron_empty trigger["t"].expression`}},
	"cron four fields":         {trigger(`expression = "* * * *"`), []string{`cron_fields trigger["t"].expression`}},
	"cron minute 60":           {trigger(`expression = "60 * * * *"`), []string{`cron_range trigger["t"].expression`}},
	"cron step 0":              {trigger(`expression = "*/0 * * * *"`), []string{`cron_step trigger["t"].expression`}},
	"cron step 100":            {trigger(`expression = "*/100 * * * *"`), []string{`cron_step trigger["t"].expression`}},
	"cron reversed":            {trigger(`expression = "5-1 * * * *"`), []string{`cron_range trigger["t"].expression`}},
	"cron never":               {trigger(`expression = "0 0 30 2 *"`), []string{`cron_never trigger["t"].expression`}},
	"cron weekday 8":           {trigger(`expression = "0 0 * * 8"`), []string{`cron_range trigger["t"].expression`}},
	"cron minus":               {trigger(`expression = "-1 * * * *"`), []string{`cron_syntax trigger["t"].expression`}},
	"cron hexadecimal":         {trigger(`expression = "0x10 * * * *"`), []string{`cron_syntax trigger["t"].expression`}},
	"cron fraction":            {trigger(`expression = "1.5 * * * *"`), []string{`cron_syntax trigger["t"].expression`}},
	"cron ? in minute":         {trigger(`expression = "? 0 * * *"`), []string{`cron_syntax trigger["t"].expression`}},
	"cron hash reversed":       {trigger(`expression = "H(5-3) * * * *"`), []string{`cron_range trigger["t"].expression`}},
	"cron hash out of range":   {trigger(`expression = "H(0-60) * * * *"`), []string{`cron_range trigger["t"].expression`}},
	"cron hash in year":        {trigger(`expression = "0 0 0 1 1 ? H"`), []string{`cron_syntax trigger["t"].expression`}},
	"cron empty item":          {trigger(`expression = "1,,2 * * * *"`), []string{`cron_syntax trigger["t"].expression`}},
	"cron name in minute":      {trigger(`expression = "JAN * * * *"`), []string{`cron_name trigger["t"].expression`}},
	"cron line break":          {trigger(`expression = "* * * * *\n* * * * *"`), []string{`cron_control trigger["t"].expression`}},
	"cron odd space":           {trigger(`expression = "*\u00a0* * * *"`), []string{`cron_control trigger["t"].expression`}},
	"cron TZ":                  {trigger(`expression = "TZ=UTC * * * * *"`), []string{`cron_tz_prefix trigger["t"].expression`}},
	"cron TZ alone":            {trigger(`expression = "TZ=UTC"`), []string{`cron_tz_prefix trigger["t"].expression`}},
	"cron TZ Local":            {trigger(`expression = "TZ=Local * * * * *"`), []string{`cron_tz_prefix trigger["t"].expression`}},
	"cron macro in upper case": {trigger(`expression = "@EVERY 1m"`), []string{`cron_macro trigger["t"].expression`}},
	"cron macro":               {trigger(`expression = "@reboot"`), []string{`cron_macro trigger["t"].expression`}},
	"cron too long": {
		trigger(`expression = "` + strings.Repeat("1,", 200) + `1 * * * *"`),
		[]string{`cron_too_long trigger["t"].expression`},
	},
	"cron of 100 KB": {
		trigger(`expression = "${join(",", [for i in range(1000) : "` + strings.Repeat("1,", 49) + `1"])} * * * *"`),
		[]string{`cron_too_long trigger["t"].expression`},
	},
	"rate too short":     {trigger(`expression = "@every 1ns"`), []string{`rate_min trigger["t"].expression`}},
	"rate zero":          {trigger(`expression = "@every 0s"`), []string{`rate_min trigger["t"].expression`}},
	"rate negative":      {trigger(`expression = "@every -1m"`), []string{`rate_min trigger["t"].expression`}},
	"delay zero":         {trigger(`expression = "delay(0s)"`), []string{`rate_min trigger["t"].expression`}},
	"delay nonsense":     {trigger(`expression = "delay(soon)"`), []string{`rate_syntax trigger["t"].expression`}},
	"at on no date":      {trigger(`expression = "at(2099-02-30T00:00:00Z)"`), []string{`time_invalid trigger["t"].expression`}},
	"zone unknown":       {nightly(`timezone = "Mars/Olympus"`), []string{`tz_unknown trigger["t"].timezone`}},
	"zone in lower case": {nightly(`timezone = "america/new_york"`), []string{`tz_unknown trigger["t"].timezone`}},
	"zone Local":         {nightly(`timezone = "Local"`), []string{`tz_unknown trigger["t"].timezone`}},
	"zone offset":        {nightly(`timezone = "+02:00"`), []string{`tz_offset trigger["t"].timezone`}},
	"zone path":          {nightly(`timezone = "../../etc/passwd"`), []string{`tz_unknown trigger["t"].timezone`}},
	"zone localtime":     {nightly(`timezone = "localtime"`), []string{`tz_unknown trigger["t"].timezone`}},
	"zone UTC+2":         {nightly(`timezone = "UTC+2"`), []string{`tz_offset trigger["t"].timezone`}},
	"zone with NUL": {nightly(`timezone = "Europe/Berlin\u0000"`), []string{
		`string_nul trigger["t"].timezone`, `tz_unknown trigger["t"].timezone`,
	}},
	"dialect in wrong case":        {nightly(`dialect = "Quartz"`), []string{`enum trigger["t"].dialect`}},
	"overlap in wrong case":        {nightly(`overlap = "Last"`), []string{`enum trigger["t"].overlap`}},
	"gap unknown":                  {nightly(`gap = "forward"`), []string{`enum trigger["t"].gap`}},
	"zone empty":                   {nightly(`timezone = ""`), []string{`required trigger["t"].timezone`}},
	"gap empty":                    {nightly(`gap = ""`), []string{`required trigger["t"].gap`}},
	"calendar name":                {nightly(`calendar = "Holidays"`), []string{`name_format trigger["t"].calendar`}},
	"calendar empty":               {nightly(`calendar = ""`), []string{`required trigger["t"].calendar`}},
	"on_excluded without calendar": {nightly(`on_excluded = "skip"`), []string{`required trigger["t"].on_excluded`}},
	"on_excluded unknown":          {nightly(`calendar = "days-off"; on_excluded = "Skip"`), []string{`enum trigger["t"].on_excluded`}},
	"delay that skips":             {trigger(`expression = "delay(1m)"; calendar = "days-off"`), []string{`enum trigger["t"].on_excluded`}},
	"jitter too long":              {nightly(`jitter = "25h"`), []string{`jitter_range trigger["t"].jitter`}},
	"jitter negative":              {nightly(`jitter = "-1s"`), []string{`duration_syntax trigger["t"].jitter`}},
	"jitter without unit":          {nightly(`jitter = "5"`), []string{`duration_unit trigger["t"].jitter`}},
	"jitter in weeks":              {nightly(`jitter = "1w"`), []string{`duration_unit trigger["t"].jitter`}},
	"jitter empty":                 {nightly(`jitter = ""`), []string{`duration_empty trigger["t"].jitter`}},
	"window order": {
		nightly(`start_at = "2031-01-01T00:00:00Z"; end_at = "2030-01-01T00:00:00Z"`),
		[]string{`window_order trigger["t"].start_at`},
	},
	"start without zone":         {nightly(`start_at = "2031-01-01T00:00:00"`), []string{`time_zone_missing trigger["t"].start_at`}},
	"end on no date":             {nightly(`end_at = "2030-02-30T00:00:00Z"`), []string{`time_invalid trigger["t"].end_at`}},
	"leap second":                {nightly(`end_at = "2030-12-31T23:59:60Z"`), []string{`time_invalid trigger["t"].end_at`}},
	"repeat count":               {nightly(`repeat_count = -1`), []string{`repeat_range trigger["t"].repeat_count`}},
	"repeat count of a half":     {nightly(`repeat_count = 1.5`), []string{`repeat_range trigger["t"].repeat_count`}},
	"repeat count too large":     {nightly(`repeat_count = 1e30`), []string{`repeat_range trigger["t"].repeat_count`}},
	"concurrency_policy unknown": {hook + daily + `concurrency_policy = "Forbid"`, []string{`enum concurrency_policy`}},
	"max_concurrency negative":   {hook + daily + `max_concurrency = -1`, []string{`count_range max_concurrency`}},
	"max_concurrency of a half":  {hook + daily + `max_concurrency = 1.5`, []string{`count_range max_concurrency`}},
	"max_concurrency too large":  {hook + daily + `max_concurrency = 1001`, []string{`count_range max_concurrency`}},
	"queue_limit zero":           {hook + daily + `queue_limit = 0`, []string{`count_range queue_limit`}},
	"queue_limit too large":      {hook + daily + `queue_limit = 1001`, []string{`count_range queue_limit`}},
	"a state with overlapping runs": {hook + daily + "carry_state = true\n concurrency_policy = \"replace\"",
		[]string{`carry_state carry_state`}},
	"an objective of all fires": {hook + daily + "objective {\n within = \"1s\"\n of = \"100%\"\n }",
		[]string{`objective_form objective.of`}},
	"an objective of no time": {hook + daily + "objective {\n within = \"0s\"\n of = \"99%\"\n }",
		[]string{`duration_min objective.within`}},
	"deletion at once":       {hook + daily + `delete_after_completion = "0s"`, []string{`duration_min delete_after_completion`}},
	"deletion too soon":      {hook + daily + `delete_after_completion = "59s"`, []string{`duration_min delete_after_completion`}},
	"deletion in weeks":      {hook + daily + `delete_after_completion = "1w"`, []string{`duration_unit delete_after_completion`}},
	"misfire_policy unknown": {nightly(`misfire_policy = "do_nothing"`), []string{`enum trigger["t"].misfire_policy`}},
	"catch_up_window zero":   {nightly(`catch_up_window = "0s"`), []string{`duration_min trigger["t"].catch_up_window`}},
	"catch_up_window too short": {
		nightly(`misfire_after = "2h"; catch_up_window = "1h"`),
		[]string{`duration_min trigger["t"].catch_up_window`},
	},
	"misfire_after zero": {nightly(`misfire_after = "0s"`), []string{`duration_min trigger["t"].misfire_after`}},
	"trigger name": {
		hook + `trigger {
			name       = "No Good"
			expression = "@daily"
		}`,
		[]string{`name_format trigger["No Good"]`},
	},
	// Its first character once told a name from an unknown one.
	"trigger name with NUL": {
		hook + `trigger {
			name       = "\u00000"
			expression = "@daily"
		}`,
		[]string{`name_format trigger["\x000"]`, `string_nul trigger["\x000"]`},
	},
	"timeout empty":          {webhook(`timeout = ""`), []string{`duration_empty target.webhook.timeout`}},
	"timeout without unit":   {webhook(`timeout = "5"`), []string{`duration_unit target.webhook.timeout`}},
	"timeout in days":        {webhook(`timeout = "2d"`), []string{`duration_max target.webhook.timeout`}},
	"timeout in weeks":       {webhook(`timeout = "1w"`), []string{`duration_unit target.webhook.timeout`}},
	"timeout ISO":            {webhook(`timeout = "PT5S"`), []string{`duration_syntax target.webhook.timeout`}},
	"timeout zero":           {webhook(`timeout = "0s"`), []string{`duration_min target.webhook.timeout`}},
	"timeout too long":       {webhook(`timeout = "999999h"`), []string{`duration_max target.webhook.timeout`}},
	"timeout overflow":       {webhook(`timeout = "9999999h"`), []string{`duration_max target.webhook.timeout`}},
	"method in lower case":   {webhook(`method = "get"`), []string{`method_unknown target.webhook.method`}},
	"method CONNECT":         {webhook(`method = "CONNECT"`), []string{`method_unknown target.webhook.method`}},
	"method unknown":         {webhook(`method = "FOO"`), []string{`method_unknown target.webhook.method`}},
	"method TRACE":           {webhook(`method = "TRACE"`), []string{`method_unknown target.webhook.method`}},
	"method with line break": {webhook(`method = "POST\r\n"`), []string{`method_unknown target.webhook.method`}},
	"method empty":           {webhook(`method = ""`), []string{`method_unknown target.webhook.method`}},
	"header name":            {webhook(`headers = { "X A" = "v" }`), []string{`header_name target.webhook.headers["X A"]`}},
	"header name with colon": {webhook(`headers = { "X:A" = "v" }`), []string{`header_name target.webhook.headers["X:A"]`}},
	"header name empty":      {webhook(`headers = { "" = "v" }`), []string{`header_name target.webhook.headers[""]`}},
	"header value with NUL": {webhook(`headers = { A = "v\u0000" }`), []string{
		`header_value target.webhook.headers["A"]`, `string_nul target.webhook.headers["A"]`,
	}},
	"header value of 1 MB": {
		webhook(`headers = { A = join("", [for i in range(1024) : "` + strings.Repeat("v", 1024) + `"]) }`),
		[]string{`header_size target.webhook.headers["A"]`},
	},
	"header value": {webhook(`headers = { A = "v\r\nB: w" }`), []string{`header_value target.webhook.headers["A"]`}},
	"header reserved": {
		webhook(`headers = { "webhook-id" = "v" }`),
		[]string{`header_reserved target.webhook.headers["webhook-id"]`},
	},
	"headers reserved": {webhook(`headers = { Content-Length = "1", Transfer-Encoding = "chunked", Connection = "close" }`), []string{
		`header_reserved target.webhook.headers["Content-Length"]`, `header_reserved target.webhook.headers["Transfer-Encoding"]`,
		`header_reserved target.webhook.headers["Connection"]`,
	}},
	"header null": {webhook(`headers = { A = null }`), []string{`required target.webhook.headers["A"]`}},
	"too many headers": {
		webhook(`headers = { for i in range(51) : "h${i}" => "v" }`),
		[]string{`header_size target.webhook.headers`},
	},
	"URL empty":                 {url(``), []string{`required target.webhook.url`}},
	"URL ftp":                   {url(`ftp://x/`), []string{`url_scheme target.webhook.url`}},
	"URL file":                  {url(`file:///etc/passwd`), []string{`url_scheme target.webhook.url`}},
	"URL unix":                  {url(`unix:///run/x.sock`), []string{`url_scheme target.webhook.url`}},
	"URL without host":          {url(`http:///x`), []string{`url_host target.webhook.url`}},
	"URL without scheme":        {url(`//host/`), []string{`url_host target.webhook.url`}},
	"URL without slashes":       {url(`http:x`), []string{`url_host target.webhook.url`}},
	"URL with empty label":      {url(`http://a..b/`), []string{`url_host target.webhook.url`}},
	"URL with hyphen first":     {url(`http://-a/`), []string{`url_host target.webhook.url`}},
	"URL of bare punycode":      {url(`http://xn--/`), []string{`url_host target.webhook.url`}},
	"URL with password":         {url(`http://user:pw@host/`), []string{`url_userinfo target.webhook.url`}},
	"URL with space":            {url(`http://exa mple/`), []string{`url_syntax target.webhook.url`}},
	"URL with line break":       {url(`http://example.com/\r\nHost: x`), []string{`url_syntax target.webhook.url`}},
	"URL with fragment":         {url(`http://host/#frag`), []string{`url_fragment target.webhook.url`}},
	"URL link-local":            {url(`http://169.254.169.254/`), []string{`egress_denied target.webhook.url`}},
	"URL link-local in v6":      {url(`http://[::ffff:a9fe:a9fe]/`), []string{`egress_denied target.webhook.url`}},
	"URL too long":              {url("http://h/" + strings.Repeat("x", 2048)), []string{`url_too_long target.webhook.url`}},
	"template of a field":       {webhook(`body = "{{.Secret}}"`), []string{`template_field target.webhook.body`}},
	"template of the payload":   {webhook(`body = "{{.Payload}}"`), []string{`template_function target.webhook.body`}},
	"template with a function":  {webhook(`body = "{{env \"PATH\"}}"`), []string{`template_function target.webhook.body`}},
	"template with a loop":      {webhook(`body = "{{range .Job}}{{end}}"`), []string{`template_form target.webhook.body`}},
	"template not closed":       {webhook(`body = "{{.Job"`), []string{`template_syntax target.webhook.body`}},
	"template in a header":      {webhook(`headers = { A = "{{.Nope}}" }`), []string{`template_field target.webhook.headers["A"]`}},
	"template of a header line": {webhook(`headers = { A = "{{\"a\\nb\"}}" }`), []string{`header_value target.webhook.headers["A"]`}},
	"template of a host":        {url(`https://{{.Job}}.example.com/`), []string{`template_host target.webhook.url`}},
	"template in a URL":         {url(`https://example.com/{{.Nope}}`), []string{`template_field target.webhook.url`}},
	"template of a long URL": {
		url("https://example.com/" + strings.Repeat("{{.EventID}}", 100)),
		[]string{`url_too_long target.webhook.url`},
	},
	"template of a long body": {
		webhook(`body = "` + strings.Repeat("{{.EventID}}", 10_000) + `"`),
		[]string{`payload_too_large target.webhook.body`},
	},
	"body empty": {webhook(`body = ""`), []string{`required target.webhook.body`}},
	"templates of a payload": {
		webhook(`body = "{{json .Payload}}{{json .Payload}}"`) + `payload = "\"` + strings.Repeat("1", 200<<10) + `\""`,
		[]string{`payload_too_large target.webhook.body`},
	},
	"payload too large": {
		hook + daily + `payload = "\"` + strings.Repeat("1", 256<<10) + `\""`,
		[]string{`payload_too_large payload`},
	},
	"payload no JSON":   {hook + daily + `payload = "{hunter2"`, []string{`json_syntax payload`}},
	"payload cut short": {hook + daily + `payload = "{\"a\":"`, []string{`json_syntax payload`}},
	"payload of two":    {hook + daily + `payload = "{}{}"`, []string{`json_syntax payload`}},
	"payload empty":     {hook + daily + `payload = ""`, []string{`json_syntax payload`}},
	"payload too deep": {
		hook + daily + `payload = "` + strings.Repeat("[", 33) + strings.Repeat("]", 33) + `"`,
		[]string{`json_depth payload`},
	},
	"name":                    {hook + daily + `name = "No Good"`, []string{`name_format name`}},
	"name empty":              {hook + daily + `name = ""`, []string{`name_format name`}},
	"name too long":           {hook + daily + `name = "` + strings.Repeat("x", 300) + `"`, []string{`name_format name`}},
	"name of a path":          {hook + daily + `name = "../x"`, []string{`name_format name`}},
	"name from right to left": {hook + daily + `name = "a\u202eb"`, []string{`name_format name`}},
	"name with zero width":    {hook + daily + `name = "a\u200bb"`, []string{`name_format name`}},
	"name of an emoji":        {hook + daily + `name = "\U0001F514"`, []string{`name_format name`}},
	"app":                     {hook + daily + `app = "../x"`, []string{`name_format app`}},
	"description":             {hook + daily + `description = "` + strings.Repeat("x", 1025) + `"`, []string{`text_too_long description`}},
	"description of control":  {hook + daily + `description = "\u001b[2J"`, []string{`text_invalid description`}},
	"target of two":           {both(`function = "f"`), []string{`target_kind target.lambda`}},
	"target of none":          {`target {}` + "\n" + daily, []string{`required target.webhook`}},
	"lambda of another partition": {
		lambda(`function = "arn:aws-cn:lambda:us-east-1:123456789012:function:f"`),
		[]string{`lambda_arn target.lambda.function`},
	},
	"lambda latest version": {lambda(`function = "f:$LATEST:1"`), []string{`lambda_arn target.lambda.function`}},
	"lambda name too long": {
		lambda(`function = "${join("", [for i in range(200) : "f"])}"`),
		[]string{`lambda_arn target.lambda.function`},
	},
	"lambda timeout": {lambda(`function = "f"; timeout = "1000s"`), []string{`duration_max target.lambda.timeout`}},
	"lambda region":  {lambda(`function = "f"; region = "Frankfurt"`), []string{`lambda_arn target.lambda.region`}},
	"lambda two regions": {
		lambda(`function = "arn:aws:lambda:us-east-1:123456789012:function:f"; region = "us-west-2"`),
		[]string{`lambda_arn target.lambda.region`},
	},
	"lambda invocation":  {lambda(`function = "f"; invocation = "event"`), []string{`enum target.lambda.invocation`}},
	"lambda concurrency": {lambda(`function = "f"; concurrency = -1`), []string{`count_range target.lambda.concurrency`}},
	"lambda context":     {lambda(`function = "f"; client_context = "[]"`), []string{`json_type target.lambda.client_context`}},
	"lambda context of Event": {
		lambda(`function = "f"; invocation = "Event"; client_context = "{}"`),
		[]string{`enum target.lambda.client_context`},
	},
	"lambda role": {
		lambda(`function = "f"; assume_role { role_arn = "admin" }`),
		[]string{`role_arn target.lambda.assume_role.role_arn`},
	},
	"lambda session tag": {
		lambda(`function = "f"; assume_role {; role_arn = "arn:aws:iam::123456789012:role/r"; ` +
			`session_tags = { "Carillon:app" = "b" }; }`),
		[]string{`session_tag_reserved target.lambda.assume_role.session_tags["Carillon:app"]`},
	},
	"queue by its URL": {
		targetBlock("sqs", `queue_arn = "https://sqs.eu-central-1.amazonaws.com/1/a"`), []string{`queue_arn target.sqs.queue_arn`},
	},
	"queue attribute": {
		targetBlock("sqs", `queue_arn = "arn:aws:sqs:eu-central-1:123456789012:a"; attributes = { "aws.x" = "1" }`),
		[]string{`attribute_name target.sqs.attributes["aws.x"]`},
	},
	"queue role": {
		targetBlock("sqs", `queue_arn = "arn:aws:sqs:eu-central-1:123456789012:a"; assume_role { role_arn = "admin" }`),
		[]string{`role_arn target.sqs.assume_role.role_arn`},
	},
	"topic of another service": {
		targetBlock("sns", `topic_arn = "arn:aws:sqs:eu-central-1:123456789012:a"`), []string{`topic_arn target.sns.topic_arn`},
	},
	"topic template": {
		targetBlock("sns", `topic_arn = "arn:aws:sns:eu-central-1:123456789012:a"; subject = "{{.No}}"`),
		[]string{`template_field target.sns.subject`},
	},
	"attempts none":           {retry(`max_attempts = 0`), []string{`attempts_range retry.max_attempts`}},
	"attempts less than none": {retry(`max_attempts = -1`), []string{`attempts_range retry.max_attempts`}},
	"attempts a billion":      {retry(`max_attempts = 1000000000`), []string{`attempts_range retry.max_attempts`}},
	"attempts of a half":      {retry(`max_attempts = 1.5`), []string{`attempts_range retry.max_attempts`}},
	"attempts beyond numbers": {retry(`max_attempts = 1e30`), []string{`attempts_range retry.max_attempts`}},
	"backoff order":           {retry(`base = "1m"; cap = "30s"`), []string{`backoff_order retry.cap`}},
	"backoff base zero":       {retry(`base = "0s"`), []string{`duration_min retry.base`}},
	"backoff cap of weeks":    {retry(`cap = "1w"`), []string{`duration_unit retry.cap`}},
	"backoff too long":        {retry(`max_age = "25h"`), []string{`duration_max retry.max_age`}},
	"delays too many":         {retry(`delays = ["1s", "2s", "3s"]`), []string{`attempts_range retry.delays`}},
	"delays at fault":         {retry(`delays = ["5", "-1s"]`), []string{`duration_unit retry.delays[0]`, `duration_syntax retry.delays[1]`}},
	"delays null":             {retry(`delays = ["5s", null]`), []string{`required retry.delays[1]`}},
	"all at once": {
		`name = "A"
		 target {
		 	webhook {
		 		url     = "ftp://x/"
		 		timeout = "5"
		 		headers = { Host = "x" }
		 	}
		 }
		 trigger {
		 	name       = "a"
		 	expression = "* * * *"
		 	timezone   = "CEST"
		 }
		 trigger {
		 	name       = "b"
		 	expression = "@daily"
		 	start_at   = "soon"
		 }`,
		[]string{
			`name_format name`, `url_scheme target.webhook.url`, `duration_unit target.webhook.timeout`,
			`header_reserved target.webhook.headers["Host"]`, `cron_fields trigger["a"].expression`,
			`tz_unknown trigger["a"].timezone`, `time_invalid trigger["b"].start_at`,
		},
	},
}

func trigger(attributes string) string {
	return hook + "trigger {\n  name = \"t\"\n" + lines(attributes) + "}\n"
}

func lambda(attributes string) string {
	return targetBlock("lambda", attributes)
}

func targetBlock(kind, attributes string) string {
	return "target {\n " + kind + " {\n" + lines(attributes) + "}\n}\n" + daily
}

func both(attributes string) string {
	return "target {\n webhook { url = \"https://example.com/\" }\n lambda {\n" + lines(attributes) + "}\n}\n" + daily
}

func retry(attributes string) string { return hook + daily + "retry {\n" + lines(attributes) + "}\n" }

func nightly(attributes string) string { return trigger(`expression = "0 0 2 * * ?"; ` + attributes) }

// lines puts each argument of a block, separated by semicolons, on its own line.
func lines(arguments string) string { return strings.ReplaceAll(arguments, "; ", "\n") + "\n" }

func webhook(attributes string) string {
	return "target {\n webhook {\n url = \"https://example.com/\"\n" + lines(attributes) + "}\n}\n" + daily
}

func url(text string) string {
	return "target {\n webhook { url = \"" + text + "\" }\n}\n" + daily
}

func TestInvalidJobsAreRefusedAtPlan(t *testing.T) {
	need.Step(t, "provider")
	t.Parallel()
	refusedAtPlan(t, "carillon_job", badJobs)
}

// refusedAtPlan plans all bad definitions of a resource at once: each must get exactly its own
// errors. A definition without app or name gets a valid one.
func refusedAtPlan(t *testing.T, resource string, bad map[string]badDefinition) {
	t.Helper()
	f := newFixture(t)
	names := slices.Sorted(maps.Keys(bad))
	var config strings.Builder
	config.WriteString(f.config(""))
	for i, name := range names {
		fmt.Fprintf(&config, "resource %q \"row_%d\" {\n%s\n", resource, i, bad[name].attributes)
		for attribute, given := range map[string]string{"app": `(?m)^\s*app =`, "name": `(?m)^name =`} { // blocks have names, too
			if !regexp.MustCompile(given).MatchString(bad[name].attributes) {
				fmt.Fprintf(&config, "%s = \"ok\"\n", attribute)
			}
		}
		config.WriteString("}\n")
	}
	output, err := f.directory(t, config.String()).terraform(t, "plan")
	if err == nil {
		t.Fatal("the plan of bad definitions succeeded")
	}
	got := errorsByResource(output)
	for i, name := range names {
		want := slices.Sorted(slices.Values(bad[name].want))
		if diff := cmp.Diff(want, got[fmt.Sprintf("%s.row_%d", resource, i)]); diff != "" {
			t.Errorf("%s: errors (-want +got):\n%s", name, diff)
		}
	}
	if t.Failed() {
		t.Logf("terraform said:\n%s", output)
	}
	source := regexp.MustCompile(`(?m)^ *\d+: .*$`) // Terraform itself prints the line with the mistake
	for _, secret := range []string{"user:pw", "v\r\nB: w"} {
		if strings.Contains(source.ReplaceAllString(output, ""), secret) {
			t.Errorf("the output shows %q", secret)
		}
	}
}

var (
	codePattern     = regexp.MustCompile(`(?m)\((\w+)\)$`)
	resourcePattern = regexp.MustCompile(`with (\S+),`)
	detailPattern   = regexp.MustCompile(`(?m)^([a-z_]+(?:\.[a-z_]+|\["[^"]*"\]|\[\d+\])*):(?: |$)`)
)

// errorsByResource finds "code path" of each error in the output of Terraform.
func errorsByResource(output string) map[string][]string {
	found := map[string][]string{}
	for block := range strings.SplitSeq(output, "\nError: ") {
		codes, resource := codePattern.FindAllStringSubmatch(block, -1), resourcePattern.FindStringSubmatch(block)
		path := detailPattern.FindStringSubmatch(block)
		if codes == nil || resource == nil || path == nil {
			continue
		}
		found[resource[1]] = append(found[resource[1]], codes[len(codes)-1][1]+" "+path[1])
		slices.Sort(found[resource[1]])
	}
	return found
}
