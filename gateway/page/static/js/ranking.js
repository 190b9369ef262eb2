// The order of clients: the most active first. It changes every few updates only, so that rows can be read.

const UPDATES = 5;

export class Ranking {
  constructor() {
    this.names = [];
    this.age = 0;
  }

  // Returns whether the order is new.
  update(clients) {
    this.age += 1;
    const isSame = this.names.length === Object.keys(clients).length && this.names.every((name) => name in clients);
    if (isSame && this.age < UPDATES) {
      return false;
    }
    this.age = 0;
    this.names = Object.keys(clients).sort((one, other) => compare(clients[one], clients[other], one, other));
    return true;
  }
}

function compare(one, other, name, otherName) {
  return (
    other.backlogged - one.backlogged ||
    Math.round(20 * other.minute) - Math.round(20 * one.minute) ||
    other.waiting - one.waiting ||
    (name < otherName ? -1 : 1)
  );
}
