// Platformatic DB, in one process and without what nobody asks it for here: GraphQL and events.
import platformatic from '@platformatic/db'

const { PEER_DATABASE_URL, PEER_PORT } = process.env
const service = await platformatic.buildServer({
  server: { hostname: '127.0.0.1', port: Number(PEER_PORT), logger: { level: 'warn' } },
  db: {
    connectionString: PEER_DATABASE_URL,
    poolSize: 16,
    openapi: true,
    graphql: false,
    events: false
  },
  watch: false
})
await service.start()
