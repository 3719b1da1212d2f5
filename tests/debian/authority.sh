# A certificate authority in the place of the one that certbot asks; the machine trusts it, and nginx finds its certificate.
set -eu
mkdir -p authority /etc/letsencrypt/live/node.example.org
cd authority
openssl req -x509 -newkey rsa:2048 -noenc -keyout authority.key -out authority.crt -days 10 -subj "/CN=An authority" \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign
openssl req -newkey rsa:2048 -noenc -keyout privkey.pem -out request.pem -subj /CN=node.example.org
echo subjectAltName=DNS:node.example.org,DNS:shop.example.org >extensions
openssl x509 -req -in request.pem -CA authority.crt -CAkey authority.key -CAcreateserial -days 9 -extfile extensions \
    -out certificate.pem
cat certificate.pem authority.crt >fullchain.pem
cp fullchain.pem privkey.pem /etc/letsencrypt/live/node.example.org/
cp authority.crt /usr/local/share/ca-certificates/
update-ca-certificates
