// A storefront of one page: it buys a teapot, shows how to pay it, and follows the state of the payment.
import { SENTENCES } from './sentences.mjs';

const SHOP_API = '/shop-api';
const METHOD = 'coins';
const PAUSE = 1000;
const PAYMENTS = 'code state payments { state createdAt metadata }';

const byId = id => document.getElementById(id);

async function ask(query, variables = {}) {
    const headers = { 'content-type': 'application/json' };
    const token = sessionStorage.getItem('token');
    if (token) headers.authorization = `Bearer ${token}`;
    const answer = await fetch(SHOP_API, {
        method: 'POST',
        headers,
        body: JSON.stringify({ query, variables }),
    });
    const given = answer.headers.get('vendure-auth-token');
    if (given) sessionStorage.setItem('token', given);
    const { data, errors } = await answer.json();
    if (errors) throw new Error(errors[0].message);
    const [result] = Object.values(data);
    const refusal = result?.paymentErrorMessage ?? result?.transitionError ?? result?.message;
    if (refusal) throw new Error(refusal);
    return result;
}

/** The order of this visitor: the active one, or, once the node has seen the payment, the placed one. */
async function findOrder() {
    const active = await ask(`{ activeOrder { ${PAYMENTS} } }`);
    if (active?.payments.length) sessionStorage.setItem('code', active.code);
    const code = sessionStorage.getItem('code');
    if (active || !code) return active;
    return ask(`query ($code: String!) { orderByCode(code: $code) { ${PAYMENTS} } }`, { code });
}

function show(order) {
    const payments = [...(order?.payments ?? [])].sort((one, other) =>
        one.createdAt < other.createdAt ? 1 : -1,
    );
    const payment = payments.find(each => each.metadata.public);
    const waits = payment?.state === 'AwaitingTransfer';
    byId('cart').hidden = payment !== undefined && payment.state !== 'Cancelled';
    byId('payment').hidden = !waits;
    if (!payment) return;
    const details = payment.metadata.public;
    byId('message').textContent = SENTENCES[payment.state]?.(details) ?? payment.state;
    if (!waits) return;
    byId('amount').textContent = `${details.amount} ${details.unit}`;
    const until = new Date(details.payUntil).toLocaleTimeString([], { timeStyle: 'long' });
    byId('until').textContent = `until ${until}`;
    byId('uri').textContent = details.paymentUri;
    byId('wallet').href = details.paymentUri;
    byId('checkout').href = details.checkoutUrl;
    if (byId('code').getAttribute('src') !== details.qrCodePath) byId('code').src = details.qrCodePath;
}

const go = state =>
    ask(
        `mutation ($state: String!) { transitionOrderToState(state: $state) {
        ... on OrderStateTransitionError { transitionError } } }`,
        { state },
    );

async function buy() {
    const active = await ask('{ activeOrder { state } }');
    if (active === null) {
        sessionStorage.removeItem('code');
        const { items } = await ask('{ products { items { variants { id } } } }');
        await ask(
            `mutation ($variant: ID!) { addItemToOrder(productVariantId: $variant, quantity: 1) {
            ... on ErrorResult { message } } }`,
            { variant: items[0].variants[0].id },
        );
    }
    if (active?.state !== 'ArrangingPayment') {
        await ask(`mutation { setCustomerForOrder(input: {
            firstName: "A", lastName: "Buyer", emailAddress: "buyer@shop.example" }) { ... on ErrorResult { message } } }`);
        await ask(`mutation { setOrderShippingAddress(input: {
            streetLine1: "Street 1", countryCode: "DE" }) { ... on ErrorResult { message } } }`);
        const [{ id }] = await ask('{ eligibleShippingMethods { id } }');
        await ask(
            `mutation ($id: [ID!]!) { setOrderShippingMethod(shippingMethodId: $id) {
            ... on ErrorResult { message } } }`,
            { id: [id] },
        );
        await go('ArrangingPayment');
    }
    await ask(
        `mutation ($method: String!) { addPaymentToOrder(input: { method: $method, metadata: {} }) {
        ... on ErrorResult { message } ... on PaymentFailedError { paymentErrorMessage } } }`,
        { method: METHOD },
    );
}

/** Does what a button says, and shows the sentence of a refusal. */
function when(id, act) {
    byId(id).addEventListener('click', async () => {
        byId(id).disabled = true;
        try {
            await act();
            show(await findOrder());
        } catch (error) {
            byId('message').textContent = error.message;
        }
        byId(id).disabled = false;
    });
}

async function follow() {
    try {
        const order = await findOrder();
        if (order?.payments.length) show(order);
    } catch (error) {
        byId('message').textContent = error.message;
    }
    setTimeout(follow, PAUSE);
}

when('buy', buy);
// The order goes back to the cart, and the amount does not hold any more.
when('back', () => go('AddingItems'));
await follow();
