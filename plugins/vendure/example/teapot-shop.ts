import { InitialData, LanguageCode } from '@vendure/core';
import type { SimpleGraphQLClient } from '@vendure/testing';
import gql from 'graphql-tag';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

const PRODUCTS = `name,slug,description,assets,facets,optionGroups,optionValues,sku,price,taxCategory,stockOnHand,trackInventory,variantAssets,variantFacets
Teapot,teapot,A teapot,teapot.svg,,,,T1,12.50,standard,100,true,,
`;

const PICTURE =
    '<svg xmlns="http://www.w3.org/2000/svg" width="90" height="60"><path d="M15 20h50q10 20-10 35H25Q5 40 15 20z"/></svg>';

const initialData: InitialData = {
    defaultLanguage: LanguageCode.en,
    defaultZone: 'Europe',
    taxRates: [{ name: 'None', percentage: 0 }],
    shippingMethods: [{ name: 'Free', price: 0 }],
    countries: [{ name: 'Germany', code: 'DE', zone: 'Europe' }],
    paymentMethods: [],
    collections: [],
};

/** What a new server is filled with: a shop that sells a teapot for 12.50. The list of products and their picture are written to `folder`. */
export function teapotShop(folder: string): { initialData: InitialData; productsCsvPath: string } {
    const productsCsvPath = join(folder, 'products.csv');
    writeFileSync(productsCsvPath, PRODUCTS);
    writeFileSync(join(folder, 'teapot.svg'), PICTURE);
    return { initialData, productsCsvPath };
}

/** The plugin's handler with the settings of a payment method. */
export const handlerOf = (settings: { [name: string]: string | number }) => ({
    code: 'svc-pay',
    arguments: Object.entries(settings).map(([name, value]) => ({ name, value: String(value) })),
});

/** Offers buyers a payment method in coins. */
export async function offerCoins(
    admin: SimpleGraphQLClient,
    { code, name }: { code: string; name: string },
    settings: { [name: string]: string | number },
): Promise<void> {
    await admin.query(
        gql`
            mutation ($input: CreatePaymentMethodInput!) {
                createPaymentMethod(input: $input) {
                    id
                }
            }
        `,
        {
            input: {
                code,
                enabled: true,
                handler: handlerOf(settings),
                translations: [{ languageCode: LanguageCode.en, name, description: '' }],
            },
        },
    );
}
