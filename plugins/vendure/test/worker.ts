/** Vendure's worker as a process of its own, as a created shop has it; its argument is the settings of the shop. */
import { bootstrapWorker } from '@vendure/core';

import { configOf, ShopSettings } from './shop';

const settings = JSON.parse(process.argv[2] ?? '') as ShopSettings;
void bootstrapWorker(configOf(settings)).then(worker => worker.startJobQueue());
