// Package oidc tells who holds a JSON Web Token (JWT) of an OpenID Connect issuer, and what rules of the operator
// permit to them. Pipelines and workloads get such tokens from their platform, so none need be stored.
//
// # What is checked
//
// A JWT is accepted if it is signed by a key that the issuer publishes, with RS256, ES256, ES384, ES512 or EdDSA; if
// its issuer is the configured one and its audience holds the configured one; if it has an expiry, and is within its
// times by a minute of leeway; and if a rule fits its claims. The first rule that fits decides. The JWT is neither
// kept nor logged, and what its header says of keys, but for the name of one, is ignored.
//
// # Keys
//
// Keys come from the issuer's discovery document, by https, without redirects. Run fetches them each hour; a JWT
// with the name of an unknown key has them fetched at once, but not more than once a minute, so that nobody makes a node
// flood its issuer. Keys serve for a day after the last successful fetch: an issuer that is down for an hour stops
// nobody. Only requests with a JWT ever wait for the issuer.
package oidc
