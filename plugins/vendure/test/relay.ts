import { createServer, IncomingMessage, request, Server, ServerResponse } from 'node:http';

/** A proxy between a shop and its node: it counts requests, holds some of them up, and leads to another node later. */
export class Relay {
    /** The paths that were asked for. */
    readonly paths: string[] = [];
    private server: Server;
    /** A refusal in the place of the answer to the next request with such a path. */
    refusal: { of: (path: string) => boolean; status: number; error: string } | undefined;
    private held: Array<() => void> = [];
    private holds: ((path: string) => boolean) | undefined;

    constructor(
        readonly port: number,
        public target: string,
    ) {
        this.server = createServer((asked, answer) => this.serve(asked, answer));
    }

    get url(): string {
        return `http://127.0.0.1:${this.port}`;
    }

    start(): Promise<void> {
        return new Promise(done => this.server.listen(this.port, '127.0.0.1', done));
    }

    async stop(): Promise<void> {
        this.release();
        await new Promise(done => {
            this.server.close(done);
            this.server.closeAllConnections();
        });
    }

    /** Holds the next request with such a path up until `release`; resolves when it has come. */
    hold(of: (path: string) => boolean): Promise<void> {
        return new Promise(come => {
            this.holds = path => {
                if (!of(path)) return false;
                this.holds = undefined;
                come();
                return true;
            };
        });
    }

    release(): void {
        for (const goOn of this.held.splice(0)) goOn();
    }

    private serve(asked: IncomingMessage, answer: ServerResponse): void {
        const path = asked.url ?? '';
        this.paths.push(path);
        const { refusal } = this;
        if (refusal?.of(path)) {
            this.refusal = undefined;
            answer.writeHead(refusal.status, { 'content-type': 'application/json' });
            answer.end(JSON.stringify({ ok: false, error: refusal.error }));
            return;
        }
        const goOn = () => {
            const { method, headers } = asked;
            const options = { method, headers, agent: false };
            const passed = request(`${this.target}${path}`, options, told => {
                answer.writeHead(told.statusCode ?? 502, told.headers);
                told.pipe(answer);
            });
            // As a node that is not there: it closes the connection.
            passed.on('error', () => answer.destroy());
            asked.pipe(passed);
        };
        if (this.holds?.(path)) this.held.push(goOn);
        else goOn();
    }
}
