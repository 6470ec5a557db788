// Loaded before the suite's server, which would listen on all addresses of the machine.
import net from 'node:net'

const { listen } = net.Server.prototype
net.Server.prototype.listen = function (port) {
  return listen.call(this, port, '127.0.0.1')
}
