// Makes keys and signed transactions of hsd's regtest, whose formats only hsd knows: node hsd_sign.js FOLDER
// FOLDER is that of hsd. Standard input is {"addresses": COUNT}, answered by the address of a key on each line, or
// {"spends": [[HASH, POSITION, VALUE, OUTPUTS, EACH], …]}, answered by the hash and the bytes of a transaction on each
// line, and EACH: it spends a coin of the first key, and pays EACH to that key so many times.
'use strict';

const {readFileSync} = require('fs');
const {KeyRing, MTX, Coin} = require(process.argv[2]);

const key = (number) => KeyRing.fromPrivate(Buffer.alloc(32, number + 1));
const wanted = JSON.parse(readFileSync(0));
const ring = key(0);
const address = ring.getAddress();

for (let number = 0; number < (wanted.addresses || 0); number++) {
  console.log(key(number).getAddress().toString('regtest'));
}

for (const [hash, index, value, outputs, each] of wanted.spends || []) {
  const mtx = new MTX();
  mtx.addCoin(Coin.fromOptions({hash: Buffer.from(hash, 'hex'), index, value, address}));
  for (let number = 0; number < outputs; number++) {
    mtx.addOutput(address, each);
  }
  mtx.sign(ring);
  console.log(mtx.txid() + ' ' + mtx.toHex() + ' ' + each);
}
