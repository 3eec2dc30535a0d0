SELECT token
FROM claims
WHERE node IN (SELECT value ->> 0 FROM jsonb_each($1))
ORDER BY token + 0
LIMIT $2
