SELECT token
FROM claims
WHERE node = ANY ($1::bigint[])
ORDER BY token + 0
LIMIT $2
