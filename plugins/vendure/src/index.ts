export { svcPayArgs, svcPayHandler } from './handler';
export { SvcPayPlugin } from './plugin';
export { svcPayFulfillmentProcess, svcPayOrderProcess, svcPayPaymentProcess } from './processes';
export { SvcPayCheck } from './svc-pay.check';
export { SvcPayService } from './svc-pay.service';
export { svcPayTask, svcPayTest } from './task';
export * from './types';
