SELECT c.token
FROM claims AS c
WHERE NOT EXISTS (
  SELECT 1
  FROM nodes AS o
  WHERE o.id = c.node
    AND o.state <> 'dead'
)
ORDER BY c.token
LIMIT $1
