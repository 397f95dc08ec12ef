"""server.py PORT CERTIFICATE KEY DIRECTORY REFUSES: keeps what is sent to it, after it has refused so many requests."""
import http.server, os, ssl, sys

port, certificate, key, directory, refuses = sys.argv[1:]


class Server(http.server.BaseHTTPRequestHandler):
    left = int(refuses)

    def do_PUT(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if Server.left > 0:
            Server.left -= 1
            return self.send_error(503)
        if self.headers["Authorization"] != "Bearer of-the-story" or self.headers["X-Story"] != "one":
            return self.send_error(401)
        path = directory + self.path
        os.makedirs(os.path.dirname(path), exist_ok=True)
        open(path, "ab").write(body + b"\n")
        self.send_response(201)
        self.end_headers()


server = http.server.HTTPServer(("", int(port)), Server)
tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
tls.load_cert_chain(certificate, key)
server.socket = tls.wrap_socket(server.socket, server_side=True)
server.serve_forever()
