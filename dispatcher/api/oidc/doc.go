// Package oidc identifies the owner of a JSON Web Token (JWT) of an OpenID Connect issuer, and finds the permissions in
// the operator's rules. Pipelines and workloads get such tokens from their platform, so none need be stored.
//
// # What is checked
//
// A JWT is accepted if it is signed by a key that the issuer publishes, with RS256, ES256, ES384, ES512 or EdDSA; if
// its issuer is the configured one and its audience holds the configured one; if it has an expiry, and is within its
// times by a minute of leeway; and if a rule fits its claims. The first rule that fits decides. The JWT is neither kept
// nor logged. Keys in its header are ignored, except for the name of one.
//
// # Keys
//
// Keys come from the issuer's discovery document, by https, without redirects. Run fetches them each hour; a JWT with
// the name of an unknown key has them fetched at once, but at most once a minute, so that callers cannot make a node
// flood its issuer. Keys are used for a day after the last successful fetch: an issuer that is down for an hour stops
// no caller. Only requests with a JWT ever wait for the issuer.
package oidc
