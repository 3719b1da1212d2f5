import type * as SvcPay from 'svc-pay' with { 'resolution-mode': 'import' };

export type {
    Client,
    FeedPage,
    Payment as NodePayment,
    PaymentRequest,
    Quote,
    RateSource,
    ReceivedTransfer,
    State,
    StoredOrder,
} from 'svc-pay' with { 'resolution-mode': 'import' };

let loading: Promise<typeof SvcPay> | undefined;

/**
 * @description
 * The client for JavaScript. It consists of ES modules and a Vendure server of CommonJS ones, so it is
 * imported when it is first needed.
 */
export function svcPay(): Promise<typeof SvcPay> {
    loading ??= import('svc-pay');
    return loading;
}
