import { Controller, Get, Param, Post, Req, Res } from '@nestjs/common';
import { Logger } from '@vendure/core';
import type { Request, Response } from 'express';
import { renderSVG } from 'uqr';

import { loggerCtx } from './constants';
import { svcPay } from './svc-pay';
import { SvcPayService } from './svc-pay.service';

/**
 * @description
 * Takes the events of the nodes. An event only says that there is something to ask the node about, so that it
 * does not matter how often, and in which order, events come.
 */
@Controller('svc-pay')
export class SvcPayController {
    constructor(private service: SvcPayService) {}

    @Post('webhook/:node')
    async webhook(@Param('node') name: string, @Req() request: Request, @Res() response: Response) {
        const { SvcPayError } = await svcPay();
        const webhook = await this.service.webhook(name);
        if (webhook === null) {
            response.status(404).send('no such node');
            return;
        }
        let reference: string | null;
        try {
            const body: unknown = request.body;
            const event = await webhook.verify(
                Buffer.isBuffer(body) ? body : Buffer.alloc(0),
                request.headers,
            );
            reference = 'payment' in event ? event.payment.reference : null;
        } catch (error) {
            if (!(error instanceof SvcPayError)) throw error;
            Logger.warn(`refused a callback: ${error.message}`, loggerCtx);
            response.status(401).send('not signed by the node');
            return;
        }
        try {
            if (reference !== null) await this.service.lookUp(name, reference);
        } catch (error) {
            if (!(error instanceof SvcPayError)) throw error;
            Logger.error(`${reference}: ${error.message}`, loggerCtx);
            // The node sends the event again. Not 503, with which it would slow down the events of all other orders.
            response.status(409).send('the node does not answer');
            return;
        }
        response.status(200).send();
    }

    /** The QR code of an attempt: nodes let no page of another site show theirs. */
    @Get('code/:reference')
    async code(@Param('reference') reference: string, @Res() response: Response) {
        const uri = await this.service.paymentUri(reference);
        if (uri === null) response.status(404).send('no such payment');
        else response.type('svg').send(renderSVG(uri, { border: 4 }));
    }
}
